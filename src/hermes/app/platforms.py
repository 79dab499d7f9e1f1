"""The accounts on chat platforms that are switched on."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any

from msgspec.structs import fields, replace

from hermes.app.options import AppOptions
from hermes.app.settings import platform_section
from hermes.config.agents import read_agent
from hermes.config.check import close_match, struct_of, without_effect
from hermes.config.dotenv import parse_env
from hermes.config.loader import VARIABLE, LoadedConfig, read_env_text
from hermes.config.paths import HermesHome
from hermes.control.admission.authz import ACCESS_KEYS
from hermes.control.supervision.instance import credential_locks_dir, hold_credential
from hermes.domain.errors import ConfigError, HermesError
from hermes.domain.platforms import ChatPlatform, platforms
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.platform import Adapter, AdapterRequest, SettingPlaces
from hermes.domain.profile import DEFAULT_AGENT
from hermes.domain.settings.doors import Platform
from hermes.entry.chat.kit.settings import ChatSettings, credential, live_settings, spellings
from hermes.entry.http.listener import SharedListener
from hermes.entry.http.settings import HttpSettings, WebhookSettings

log = logging.getLogger(__name__)

PEOPLE_OF_GATEWAY = frozenset({"GATEWAY_ALLOWED_USERS", "GATEWAY_ALLOW_ALL_USERS"})


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
                if self._known is not None and not credential(self.platform, places):
                    places = self._known[1]  # its home is gone: the bot says so
            else:
                places = _places(loaded, self.platform, self.account)
            self._known = loaded, places
        return self._known[1]

    @property
    def places(self) -> SettingPlaces:
        return self._places()


def bot_id(account: PlatformAccount) -> str:
    """Return what the platform calls an account, if that can be told without asking it."""
    try:
        return account.make().account
    except HermesError:
        return ""


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
    return [
        PlatformAccount(platform, account, loaded, options, own=own, **shared)
        for platform in enabled_platforms(loaded(), options.home)
        for account, own in account_names(loaded(), options.home, platform)
    ]


def account_names(
    loaded: LoadedConfig, home: HermesHome, platform: ChatPlatform
) -> list[tuple[str, bool]]:
    """Return the accounts of a platform, and whether each has the credentials of an agent.

    The one without a name is there if its credentials are no named one's.
    """
    general, *of_named = (
        set(credential(platform, _places(loaded, platform, each)).split("\n")) - {""}
        for each in ("", *_accounts(loaded, platform))
    )
    named, agents = _accounts(loaded, platform), _agents_with(loaded, home, platform)
    base = general.isdisjoint(set().union(*of_named)) if general else not named and not agents
    return [("", False)] * base + [(n, False) for n in named] + [(each, True) for each in agents]


def twin_accounts(loaded: LoadedConfig, home: HermesHome) -> list[str]:
    """Name the accounts that have a credential of another one: they do not connect."""
    found = []
    for platform in enabled_platforms(loaded, home):
        holders: dict[str, str] = {}
        for account, own in account_names(loaded, home, platform):
            places = (
                _places_of_agent(loaded, home, platform, account)
                if own
                else _places(loaded, platform, account)
            )
            name = f"{platform.name}:{account}" if account else platform.name
            found += [
                f"{name} has the same credential as {holder} and does not connect:"
                " give it one of its own"
                for secret in filter(None, credential(platform, places).split("\n"))
                if (holder := holders.setdefault(secret, name)) != name
            ]
    return list(dict.fromkeys(found))


def renewed_accounts(
    known: Sequence[PlatformAccount], loaded: Callable[[], LoadedConfig], options: AppOptions
) -> list[PlatformAccount]:
    """Return the accounts as they are now; platforms stay.

    The bot of an agent that cannot work any more stays, too: it says so.
    """
    now, home = loaded(), options.home
    before = {(each.name, each.own): each for each in known}
    found = []
    for first in {each.platform.name: each for each in reversed(known)}.values():
        names = account_names(now, home, first.platform)
        names += [
            (each.account, True)
            for each in known
            if each.platform is first.platform and each.own and _broken(each.account, now, home)
        ]
        for account, own in dict.fromkeys(names):
            new = PlatformAccount(first.platform, account, loaded, options, own=own, **first.shared)
            found.append(before.get((new.name, own), new))
    return found


def _broken(agent: str, loaded: LoadedConfig, home: HermesHome) -> bool:
    if agent in loaded.config.agents:
        with suppress(ConfigError):
            read_agent(agent, loaded, home)
            return False
    return agent in loaded.config.agents


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
        accounts = _flat_accounts(platform.extra.get("accounts"))
        parts = {"": platform.extra} | {
            f"accounts.{name}.": keys for name, keys in accounts.items()
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
    return found


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
    found = []
    for agent, entry in loaded.config.agents.items():
        # There may be hundreds of agents without a bot: most are told by a look.
        if "platforms" not in str(entry):
            text = _env_text(agent, loaded, home)
            if not any(each.variable in text for each in platform.credentials):
                continue
        if credential(platform, _places_of_agent(loaded, home, platform, agent)):
            found.append(agent)
    return found


def _env_text(agent_id: str, loaded: LoadedConfig, home: HermesHome) -> str:
    """Return the `.env` of an agent's own home, also if the agent cannot work."""
    entry = loaded.config.agents.get(agent_id)
    named = entry.get("home") if isinstance(entry, Mapping) else None
    if named in loaded.config.agents or named == DEFAULT_AGENT:
        return ""  # that of another agent: the bots there are its own
    try:
        place = home.inside(named) if isinstance(named, str) and named else None
        return read_env_text(HermesHome(root=place or home.agents_dir / agent_id))
    except ConfigError as error:
        log.debug("agent %s: %s", agent_id, error.message)  # told elsewhere
        return ""


def _places_of_agent(
    loaded: LoadedConfig, home: HermesHome, platform: ChatPlatform, agent_id: str
) -> SettingPlaces:
    """Return the places where an agent's settings of a platform stand: no general credential.

    Of an agent that cannot work they are read as far as possible: its bot answers that.
    """
    general = platform_section(loaded, platform.name)
    variables = parse_env(_env_text(agent_id, loaded, home)).values
    hidden = {each.key for each in platform.credentials} | {"accounts", "agent"}
    secret = {each.variable for each in platform.credentials}
    try:
        scope = read_agent(agent_id, loaded, home).scope
        if scope is None:
            return SettingPlaces(section={}, variables={})
        laid = replace(loaded, config=scope.settings(loaded.config))
        section, variable = platform_section(laid, platform.name), scope.variable
    except ConfigError:
        section = {**general, **_written(loaded.config.agents[agent_id], platform, variables)}

        def variable(name: str) -> str | None:
            hidden = name in loaded.secrets and name not in variables
            return None if hidden else variables.get(name) or loaded.variable(name)

    people = {f"{platform.prefix}_{key.upper()}": key for key in ACCESS_KEYS}
    written = _written(loaded.config.agents[agent_id], platform, variables)
    own = {key for key in ACCESS_KEYS if key in written or section.get(key) != general.get(key)}
    own_people = bool(own) or not variables.keys().isdisjoint({*people, *PEOPLE_OF_GATEWAY})
    # Who may talk to main's bot may not for that reason talk to this one.
    hidden |= (
        ACCESS_KEYS - own
        if own_people
        else {key for name, key in people.items() if loaded.variables.get(name)}
    )
    secret |= {*people, *(PEOPLE_OF_GATEWAY if own_people else ())}
    return SettingPlaces(
        section={
            key: value
            for key, value in section.items()
            # The token of another bot is refused where it connects, and that is said.
            if key not in hidden
            or (key != "accounts" and (key in written or value != general.get(key)))
        },
        variables={
            name: value
            for name in {*loaded.variables, *variables}
            if (name not in secret or name in variables) and (value := variable(name))
        },
        agent=agent_id,
        own_people=own_people,
    )


def _written(entry: Any, platform: ChatPlatform, variables: Mapping[str, str]) -> Mapping[str, Any]:
    """Return what an entry that cannot be read says about a platform."""
    for key in ("settings", "platforms", platform.name):
        entry = entry.get(key) if isinstance(entry, Mapping) else None
    own = _flat_accounts({"": entry}).get("", {})
    return {
        key: VARIABLE.sub(lambda found: variables.get(found[1]) or "", value)
        if isinstance(value, str)
        else value
        for key, value in own.items()
    }


def _enabled(loaded: LoadedConfig, platform: ChatPlatform, home: HermesHome | None) -> bool:
    """A platform is on if the configuration says so, or if it could work and nothing is said."""
    settings = loaded.config.platforms.get(platform.name)
    if settings is not None and f"platforms.{platform.name}.enabled" in loaded.origins:
        return settings.enabled
    if _accounts(loaded, platform) or credential(platform, _places(loaded, platform, "")):
        return True
    return home is not None and bool(_agents_with(loaded, home, platform))


def _accounts(loaded: LoadedConfig, platform: ChatPlatform) -> Mapping[str, Any]:
    return _flat_accounts(platform_section(loaded, platform.name).get("accounts"))


def _flat_accounts(accounts: Any) -> dict[str, Mapping[str, Any]]:
    """Return what is written about each account; `extra` may be in between, as in platforms."""
    given = accounts.items() if isinstance(accounts, Mapping) else ()
    found: dict[str, Mapping[str, Any]] = {}
    for name, own in given:
        written = dict(own) if isinstance(own, Mapping) else {}
        inner = written.pop("extra", None)
        found[str(name)] = {**inner, **written} if isinstance(inner, Mapping) else written
    return found


def _places(loaded: LoadedConfig, platform: ChatPlatform, account: str) -> SettingPlaces:
    """Return the places where settings stand; an account's own win over everything."""
    section = platform_section(loaded, platform.name)
    variables = loaded.variables
    own = _accounts(loaded, platform).get(account)
    if own is None:
        return SettingPlaces(section=section, variables=variables)
    agent = str(own.get("agent") or "")
    agent = "" if agent == DEFAULT_AGENT else agent
    own_people = bool(agent) and not ACCESS_KEYS.isdisjoint(own)
    named = {each.key: each.variable for each in platform.credentials}
    hidden = {named.get(key, f"{platform.prefix}_{key.upper()}") for key in own}
    if own_people:
        section = {key: value for key, value in section.items() if key not in ACCESS_KEYS}
        hidden |= {f"{platform.prefix}_{key.upper()}" for key in ACCESS_KEYS}
        hidden |= PEOPLE_OF_GATEWAY
    variables = {name: value for name, value in variables.items() if name not in hidden}
    return SettingPlaces(
        section={**section, **own}, variables=variables, agent=agent, own_people=own_people
    )
