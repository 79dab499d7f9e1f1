"""The chat platforms there are, and those that are switched on."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from importlib import import_module
from typing import Any, TypeVar

from hermes.app.access import platform_section
from hermes.app.options import AppOptions
from hermes.config.loader import LoadedConfig
from hermes.control.supervision.instance import credential_locks_dir, hold_credential
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.platform import Adapter, AdapterRequest, Manifest
from hermes.domain.settings import Settings
from hermes.streaming.chat.settings import PresentationSettings

_T = TypeVar("_T")

BUILTIN: Mapping[str, str] = {"telegram": "hermes.entry.chat.telegram"}
"""Platforms and their packages: `manifest` is cheap, `build` imports the rest."""


class PlatformKit:
    """One platform that is switched on."""

    def __init__(
        self, package: str, loaded: LoadedConfig, options: AppOptions, clock: Clock
    ) -> None:
        self._package = package
        manifest = import_module(f"{package}.manifest").MANIFEST
        assert isinstance(manifest, Manifest)
        self.manifest = manifest
        block = getattr(loaded.config, manifest.name, {})
        self._request = AdapterRequest(
            section=platform_section(loaded, manifest.name),
            block=block if isinstance(block, Mapping) else {},
            variables=loaded.variables,
            media_dir=options.home.cache_dir / "media" / manifest.name,
            clock=clock,
        )
        self._locks = credential_locks_dir(options.environ)
        self._home = options.home.root

    def make(self) -> Adapter:
        """Return an adapter that is not connected yet."""
        adapter: Adapter = self._module().build(self._request)
        return adapter

    def hold(self) -> Callable[[], AbstractContextManager[object]]:
        """Return what keeps other gateways from using the same credential."""
        secret: str = self._module().credential(self._request)
        return partial(hold_credential, self._locks, self.manifest.name, secret, self._home)

    def channel_prompt(self, chat_id: str, thread_id: str | None) -> str:
        """Return what the owner wants the model to know in a chat; platforms may lack it."""
        return self._asked("channel_prompt", "", chat_id, thread_id)

    def reactions(self) -> bool:
        """Tell whether progress is to be shown as reactions; platforms may lack them."""
        return self.manifest.capabilities.reactions and self._asked("reactions", default=False)

    def _asked(self, name: str, default: _T, *given: object) -> _T:
        function = getattr(self._module(), name, None)
        return default if function is None else function(self._request, *given)

    def _module(self) -> Any:
        return import_module(f"{self._package}.build")


def enabled_platforms(loaded: LoadedConfig, options: AppOptions, clock: Clock) -> list[PlatformKit]:
    """Return the chat platforms that are switched on."""
    return [PlatformKit(BUILTIN[name], loaded, options, clock) for name in platform_names(loaded)]


def platform_names(loaded: LoadedConfig) -> tuple[str, ...]:
    """Return which chat platforms are switched on."""
    return tuple(name for name in BUILTIN if _enabled(loaded, name))


def _enabled(loaded: LoadedConfig, name: str) -> bool:
    """A platform is on if the configuration says so, or if it has a token and says nothing."""
    platform = loaded.config.platforms.get(name)
    if platform is None:
        return bool(getattr(loaded.config, name, {}).get("token"))
    said = loaded.origin(f"platforms.{name}.enabled") != "default"
    return platform.enabled if said else bool(platform.token)


def presentation(config: Settings, name: str) -> PresentationSettings:
    """Return how turns are shown on a platform."""
    streaming, display = config.streaming, config.display
    own = display.platforms.get(name)

    def pick(key: str, general: Any) -> Any:
        value = getattr(own, key, None) if own is not None else None
        return general if value is None else value

    return PresentationSettings(
        enabled=pick("streaming", streaming.enabled),
        transport=streaming.transport,
        edit_interval=streaming.edit_interval,
        buffer_threshold=streaming.buffer_threshold,
        cursor=streaming.cursor,
        tool_progress=pick("tool_progress", display.tool_progress) or "off",
        tool_progress_grouping=pick("tool_progress_grouping", display.tool_progress_grouping),
        tool_preview_length=pick("tool_preview_length", display.tool_preview_length),
        friendly_tool_labels=pick("friendly_tool_labels", display.friendly_tool_labels),
        interim_assistant_messages=pick(
            "interim_assistant_messages", display.interim_assistant_messages
        ),
        show_reasoning=bool(pick("show_reasoning", None)),
    )
