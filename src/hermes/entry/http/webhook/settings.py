"""Settings of the webhook receiver, from `platforms.webhook`."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from hermes.config.hosts import is_loopback
from hermes.domain.errors import ConfigError

__all__ = ["WebhookSettings", "webhook_settings"]


class WebhookSettings(Struct, frozen=True, kw_only=True):
    """Where the receiver listens and what it takes."""

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8644
    secret: str = ""
    """For routes that have none of their own."""
    rate_limit: Annotated[int, Meta(ge=0)] = 30
    """Deliveries a minute and route; 0: no limit."""
    max_body_bytes: Annotated[int, Meta(ge=1)] = 1_048_576
    script_timeout_seconds: Annotated[float, Meta(gt=0, le=3600)] = 30.0
    routes: dict[str, Any] = {}

    @property
    def loopback(self) -> bool:
        """Whether only this machine reaches the receiver."""
        return is_loopback(self.host)

    @property
    def base_url(self) -> str:
        """The address by which this machine reaches the receiver."""
        host = "127.0.0.1" if self.host in {"", "0.0.0.0", "::"} else self.host  # noqa: S104
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"


def webhook_settings(section: Mapping[str, Any]) -> WebhookSettings:
    """Read the section; everything that belongs to other parts of the gateway is left alone."""
    known = {name: section[name] for name in WebhookSettings.__struct_fields__ if name in section}
    try:
        return msgspec.convert(
            {name: value for name, value in known.items() if value is not None},
            WebhookSettings,
            strict=False,
        )
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"platforms.webhook cannot be used: {error}.",
            hint="Correct it in config.yaml; see docs/how-to/webhooks.md.",
        ) from None
