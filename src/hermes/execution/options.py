"""How the options of a backend are read."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from hermes.domain.errors import ConfigError

__all__ = ["decode_options"]

T = TypeVar("T")


def decode_options(kind: type[T], options: Mapping[str, Any], what: str) -> T:
    """Check and convert the options of an environment; `what` begins the sentence of the error."""
    try:
        return msgspec.convert(dict(options), kind)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"{what} cannot be set up as configured: {error}.",
            hint="Check the `terminal` section of config.yaml.",
        ) from error
