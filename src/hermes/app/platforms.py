"""The accounts on chat platforms that are switched on."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from hermes.app.options import AppOptions
from hermes.app.settings import platform_section
from hermes.config.loader import LoadedConfig
from hermes.control.supervision.instance import credential_locks_dir, hold_credential
from hermes.domain.platforms import ChatPlatform, platforms
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.platform import Adapter, AdapterRequest, SettingPlaces
from hermes.entry.chat.kit.settings import ChatSettings, credential, live_settings
from hermes.entry.http.listener import SharedListener


class PlatformAccount:
    """One account on a platform; implements `ChatAccount`."""

    def __init__(
        self,
        platform: ChatPlatform,
        account: str,
        loaded: Callable[[], LoadedConfig],
        options: AppOptions,
        **shared: Any,
    ) -> None:
        """`shared` is what the requests for adapters of all accounts have in common."""
        self.platform = platform
        self.name = f"{platform.name}:{account}" if account else platform.name
        self._account = account
        self._loaded = loaded
        self._options = options
        self._known: tuple[LoadedConfig, SettingPlaces] | None = None
        state_dir = options.home.platforms_dir / platform.name / account
        self._request = AdapterRequest(places=self._places, state_dir=state_dir, **shared)
        self._settings = live_settings(platform, ChatSettings, self._places)

    def make(self) -> Adapter:
        return self.platform.make(self._request)

    def hold(self) -> AbstractContextManager[object]:
        secret = credential(self.platform, self._places())
        locks = credential_locks_dir(self._options.environ)
        home = self._options.home.root
        return hold_credential(locks, self.platform.name, secret, home)

    def channel_prompt(self, chat_id: str, thread_id: str | None) -> str:
        """Return what the owner wants the model to know in a chat."""
        return self._settings().channel_prompt(chat_id, thread_id)

    def reactions(self) -> bool:
        return self.platform.capabilities.reactions and self._settings().reactions

    def announces(self) -> bool:
        return self._settings().gateway_restart_notification

    def _places(self) -> SettingPlaces:
        loaded = self._loaded()
        if self._known is None or self._known[0] is not loaded:
            self._known = loaded, _places(loaded, self.platform, self._account)
        return self._known[1]


def enabled_accounts(
    loaded: Callable[[], LoadedConfig], options: AppOptions, clock: Clock
) -> list[PlatformAccount]:
    """Return the accounts that are switched on; `loaded` is the configuration as it is now."""
    shared = {"clock": clock, "listener": SharedListener()}
    return [
        PlatformAccount(platform, account, loaded, options, **shared)
        for platform in enabled_platforms(loaded())
        for account in _accounts(loaded(), platform) or ("",)
    ]


def enabled_platforms(loaded: LoadedConfig) -> list[ChatPlatform]:
    return [each for each in platforms().values() if _enabled(loaded, each)]


def _enabled(loaded: LoadedConfig, platform: ChatPlatform) -> bool:
    """A platform is on if the configuration says so, or if it could work and nothing is said."""
    settings = loaded.config.platforms.get(platform.name)
    if settings is not None and f"platforms.{platform.name}.enabled" in loaded.origins:
        return settings.enabled
    if _accounts(loaded, platform):
        return True
    return bool(credential(platform, _places(loaded, platform, "")))


def _accounts(loaded: LoadedConfig, platform: ChatPlatform) -> Mapping[str, Any]:
    accounts = platform_section(loaded, platform.name).get("accounts")
    return accounts if isinstance(accounts, Mapping) else {}


def _places(loaded: LoadedConfig, platform: ChatPlatform, account: str) -> SettingPlaces:
    """Return the places where settings stand; an account's own win over everything."""
    section = platform_section(loaded, platform.name)
    variables = loaded.variables
    own = _accounts(loaded, platform).get(account)
    if isinstance(own, Mapping):
        section = {**section, **own}
        named = {each.key: each.variable for each in platform.credentials}
        hidden = {named.get(key, f"{platform.prefix}_{key.upper()}") for key in own}
        variables = {name: value for name, value in variables.items() if name not in hidden}
    return SettingPlaces(section=section, variables=variables)
