"""The accounts on chat platforms that are switched on."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from msgspec.structs import fields, replace

from hermes.app.options import AppOptions
from hermes.app.settings import platform_section
from hermes.config.agents import home_of, read_agent
from hermes.config.check import close_match, struct_of, without_effect
from hermes.config.loader import LoadedConfig, read_env_text
from hermes.config.paths import HermesHome
from hermes.control.admission.authz import ACCESS_KEYS
from hermes.control.admission.routing import refused_routes
from hermes.control.supervision.instance import credential_locks_dir, hold_credential
from hermes.domain.errors import ConfigError
from hermes.domain.platforms import ChatPlatform, platforms
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.platform import Adapter, AdapterRequest, SettingPlaces
from hermes.domain.profile import DEFAULT_AGENT
from hermes.domain.settings.doors import Platform
from hermes.entry.chat.kit.settings import ChatSettings, credential, live_settings, spellings
from hermes.entry.http.listener import SharedListener
from hermes.entry.http.settings import HttpSettings, WebhookSettings

log = logging.getLogger(__name__)


class PlatformAccount:
    """One account on a platform; implements `ChatAccount`."""

    def __init__(
        self,
        platform: ChatPlatform,
        account: str,
        loaded: Callable[[], LoadedConfig],
        options: AppOptions,
        *,
        own: bool = False,
        **shared: Any,
    ) -> None:
        """`own`: the credentials are those of the agent that `account` names.

        `shared` is what the requests for adapters of all accounts have in common.
        """
        self.own, self.shared = own, shared
        self.platform = platform
        self.name = f"{platform.name}:{account}" if account else platform.name
        self.account = account
        self._loaded = loaded
        self._options = options
        self._known: tuple[LoadedConfig, SettingPlaces] | None = None
        state_dir = options.home.platforms_dir / platform.name / account
        self._request = AdapterRequest(places=self._places, state_dir=state_dir, **shared)
        self._settings = live_settings(platform, _rules(platform), self._places)

    @property
    def agent(self) -> str:
        """Return the agent whose own account it is, by its credentials or `accounts.<name>`."""
        return self.account if self.own else str(self._places().section.get("agent") or "")

    def make(self) -> Adapter:
        from hermes.entry.chat.kit.base import make_adapter  # noqa: PLC0415 - with use

        return make_adapter(self.platform, self._request)

    @property
    def credential(self) -> str:
        return credential(self.platform, self._places())

    def hold(self) -> AbstractContextManager[object]:
        secret = self.credential
        locks = credential_locks_dir(self._options.environ)
        home = self._options.home.root
        return hold_credential(locks, self.platform.name, secret, home, self.name)

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
            if self.own:
                places = _places_of_agent(loaded, self._options.home, self.platform, self.account)
            else:
                places = _places(loaded, self.platform, self.account)
            self._known = loaded, places
        return self._known[1]

    @property
    def places(self) -> SettingPlaces:
        return self._places()


def _rules(platform: ChatPlatform) -> type[ChatSettings]:
    """Return what can be set on every platform, with the platform's own defaults."""
    own = platform.settings_type or ChatSettings
    classes = [each for each in own.__mro__ if issubclass(each, ChatSettings)]
    return next((e for e in classes if not any(f.required for f in fields(e))), ChatSettings)


def enabled_accounts(
    loaded: Callable[[], LoadedConfig], options: AppOptions, clock: Clock
) -> list[PlatformAccount]:
    """Return the accounts that are switched on; `loaded` is the configuration as it is now."""
    shared: dict[str, Any] = {"clock": clock, "listener": SharedListener()}
    now = loaded()
    found: list[PlatformAccount] = []
    for platform in enabled_platforms(now, options.home):
        named = tuple(_accounts(now, platform))
        general = bool(credential(platform, _places(now, platform, "")))
        agents = _agents_with(now, options.home, platform)
        for account in named or (("",) if general or not agents else ()):
            found += [PlatformAccount(platform, account, loaded, options, **shared)]
        found += [
            PlatformAccount(platform, each, loaded, options, own=True, **shared) for each in agents
        ]
    return found


def renewed_accounts(
    known: Sequence[PlatformAccount], loaded: Callable[[], LoadedConfig], options: AppOptions
) -> list[PlatformAccount]:
    """Return the accounts with those of agents as they are now; platforms stay."""
    first = {each.platform.name: each for each in reversed(known)}
    own = {each.name: each for each in known if each.own}
    found = [each for each in known if not each.own]
    for each in first.values():
        for agent in _agents_with(loaded(), options.home, each.platform):
            new = PlatformAccount(each.platform, agent, loaded, options, own=True, **each.shared)
            found.append(own.get(new.name, new))
    return found


def enabled_platforms(loaded: LoadedConfig, home: HermesHome | None = None) -> list[ChatPlatform]:
    return [each for each in platforms().values() if _enabled(loaded, each, home)]


OF_EVERY_PLATFORM = {*Platform.__struct_fields__, *ACCESS_KEYS, "accounts", "agent"}
_LISTENERS = {
    "api_server": {*HttpSettings.__struct_fields__, "key"},
    "webhook": {*WebhookSettings.__struct_fields__},
}


def idle_settings(loaded: LoadedConfig) -> list[str]:
    """Return what is said about keys and variables of platforms that have no effect."""
    found = []
    for name, platform in loaded.config.platforms.items():
        known = _keys(name)
        if known is None:
            if name not in platforms() and (platform.enabled or platform.extra):
                where = loaded.origin(f"platforms.{name}")
                text = "has no effect: no installed package brings this platform"
                found.append(f"{where}: platforms.{name} {text}")
            continue
        accounts = platform.extra.get("accounts")
        parts = {"": platform.extra} | {
            f"accounts.{each}.": keys
            for each, keys in (accounts.items() if isinstance(accounts, Mapping) else ())
            if isinstance(keys, Mapping)
        }
        for inside, keys in parts.items():
            for key in keys:
                if key not in known:
                    path = f"platforms.{name}.extra.{inside}{key}"
                    found.append(f"{loaded.origin(path)}: {path} {_idle(name, key, known)}")
    for each in platforms().values():
        prefix, known = f"{each.prefix}_", _keys(each.name) or set()
        for variable in loaded.variables if known else ():
            key = variable.removeprefix(prefix).lower()
            if variable.startswith(prefix) and key not in known and not _named(each, variable):
                found.append(f"{variable} {_idle(each.name, key, known)}")
    return [*found, *refused_routes(loaded.config, {DEFAULT_AGENT, *loaded.config.agents})]


def _keys(name: str) -> set[str] | None:
    """Return the keys that a platform knows; None if it does not say."""
    platform = platforms().get(name)
    if platform is None or platform.settings_type is None:
        return _LISTENERS.get(name)
    known = {*OF_EVERY_PLATFORM}
    for each in fields(platform.settings_type):
        inner = struct_of(each.type)
        nested = inner.__struct_fields__ if inner else ()
        known |= {*spellings(each.name), *(f"{each.name}_{field}" for field in nested)}
    return known


def _named(platform: ChatPlatform, variable: str) -> bool:
    credentials = (each.variable for each in platform.credentials)
    homes = ("_HOME_CHANNEL", "_HOME_CHANNEL_NAME", "_HOME_CHANNEL_THREAD_ID")
    return variable in credentials or variable.endswith(homes)


def _idle(platform: str, key: str, known: Collection[str]) -> str:
    reason = without_effect((platform, key))
    if reason is not None:
        return f"has no effect here: {reason}"
    return f"is not a known key and has no effect{close_match(key, list(known))}"


def _agents_with(loaded: LoadedConfig, home: HermesHome, platform: ChatPlatform) -> list[str]:
    """Return the agents that have credentials of a platform in their own home or settings."""
    agents, found = loaded.config.agents, []
    for agent, entry in agents.items():
        try:
            # There may be hundreds of agents without a bot: most are told by a look.
            if "platforms" not in str(entry):
                text = read_env_text(home_of(agent, agents, home))
                if not any(each.variable in text for each in platform.credentials):
                    continue
            if credential(platform, _places_of_agent(loaded, home, platform, agent)):
                found.append(agent)
        except ConfigError as error:
            log.debug("agent %s: %s", agent, error.message)  # told elsewhere
    return found


def _places_of_agent(
    loaded: LoadedConfig, home: HermesHome, platform: ChatPlatform, agent_id: str
) -> SettingPlaces:
    """Return the places where an agent's settings of a platform stand: no general credential."""
    agent = read_agent(agent_id, loaded, home)
    general = platform_section(loaded, platform.name)
    if agent.scope is None:
        return SettingPlaces(section={}, variables={})
    laid = replace(loaded, config=agent.scope.settings(loaded.config))
    section = platform_section(laid, platform.name)
    hidden = {each.key for each in platform.credentials} | {"accounts", "agent"}
    secret = {each.variable for each in platform.credentials}
    variable = agent.scope.variable
    return SettingPlaces(
        section={
            key: value
            for key, value in section.items()
            if key not in hidden or (value != general.get(key) and key != "accounts")
        },
        variables={
            name: value
            for name in {*loaded.variables, *agent.variables}
            if (name not in secret or name in agent.variables) and (value := variable(name))
        },
    )


def _enabled(loaded: LoadedConfig, platform: ChatPlatform, home: HermesHome | None) -> bool:
    """A platform is on if the configuration says so, or if it could work and nothing is said."""
    settings = loaded.config.platforms.get(platform.name)
    if settings is not None and f"platforms.{platform.name}.enabled" in loaded.origins:
        return settings.enabled
    if _accounts(loaded, platform) or credential(platform, _places(loaded, platform, "")):
        return True
    return home is not None and bool(_agents_with(loaded, home, platform))


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
