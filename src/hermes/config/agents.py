"""Agents: what `agents:` in config.yaml says, each laid over the general settings.

    agents:
      coder:
        home: agents/coder        # the default; `main` or another agent's id shares its home
        description: Writes and reviews code.
        model: gpt-5.2            # a name, or a mapping like `model:` itself
        toolsets: [terminal, file]
        settings: {agent: {max_turns: 30}, approvals: {mode: manual}}

An agent has the general settings with its own laid over them, and the variables of its own home:
`.env` there, and of the process what is no secret. `${NAME}` in its settings, and in the general
ones as far as it uses them, is looked up there. A secret that it does not have is missing, also
if another agent has one of that name; `secrets: [NAME]` lends it one of the Hermes home.

What is wrong with one agent is a `ConfigError` that concerns this agent only.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct, field

from hermes.config.check import Checker, close_match
from hermes.config.document import Document, format_key
from hermes.config.loader import VARIABLE, LoadedConfig, read_env
from hermes.config.normalize import normalize
from hermes.config.paths import HermesHome
from hermes.config.secrets import Secrets, secrets_in_config, secrets_in_variables
from hermes.domain.errors import ConfigError
from hermes.domain.profile import DEFAULT_AGENT, DEFAULT_AGENT_NAMES, AgentScope
from hermes.domain.settings import Settings
from hermes.domain.settings.section import Section

Variable = Callable[[str], str | None]
USUAL_KEY = "OPENAI_API_KEY"
"""The key for a model at an address of one's own where none is named."""
AGENT_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
RESERVED = frozenset({*DEFAULT_AGENT_NAMES, "default", "all", "none"}) - {DEFAULT_AGENT}
GENERAL_ONLY = frozenset(
    {"agents", "routes", "profile_routes", "default_agent", "gateway", "plugins", "logging"}
    | {"sessions", "group_sessions_per_user", "thread_sessions_per_user", "timezone"}
)
"""Settings of the process, which an agent cannot have for itself."""
OF_MODELS = ("model", "providers", "fallback_providers", "auxiliary")
"""Settings with keys of models: an agent has those that are written now."""


class AgentEntry(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One agent, as config.yaml has it."""

    home: str = ""
    """Its directory, below the Hermes home unless absolute; an agent's id for the home of that
    agent; empty for `agents/<id>`."""
    description: str = ""
    """What it is for, in a sentence."""
    model: Any = None
    """Its model: a name, or a mapping like `model:`; null for the general one."""
    provider: str = ""
    """The provider of its model."""
    toolsets: tuple[str, ...] | None = None
    """Its toolsets, at every door; null for those of the door."""
    backend: str = ""
    """Where its commands run; empty for `terminal.backend`."""
    prompt: str = ""
    """Who it is, in place of its `SOUL.md`."""
    workspace: str = ""
    """Where its tools start, below its home unless absolute; empty for `workspace` there."""
    secrets: tuple[str, ...] = ()
    """Names of variables of the Hermes home and the process that it may use, too."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Any other settings that differ for it."""
    expose: bool = True
    """Offer it on the HTTP API."""


class AgentConfig(Struct, frozen=True, kw_only=True):
    """An agent that can work, as far as its configuration is concerned."""

    id: str
    entry: AgentEntry
    home: HermesHome
    variables: Mapping[str, str]
    """Of its own `.env`."""
    secret_names: frozenset[str]
    """What it may use."""
    scope: AgentScope | None

    def __repr__(self) -> str:
        return f"AgentConfig({self.id}, {self.home.root})"


def check_id(agent_id: str) -> None:
    if not AGENT_ID.fullmatch(agent_id) or agent_id in RESERVED:
        raise ConfigError(
            f"`{agent_id}` cannot be the id of an agent.",
            hint="An id has small letters, digits, `-` and `_`, at most 64, and is no reserved"
            f" word ({', '.join(sorted(RESERVED))}).",
        )


def agent_entry(agent_id: str, raw: Any) -> AgentEntry:
    """Return what is written about an agent; an unknown key is a mistake: it may be a limit."""
    check_id(agent_id)
    try:
        return msgspec.convert({} if raw is None else raw, AgentEntry, strict=False)
    except msgspec.ValidationError as error:
        unknown = re.search(r"unknown field `(\w+)`", str(error))
        meant = close_match(unknown[1], list(AgentEntry.__struct_fields__)) if unknown else ""
        raise _wrong(agent_id, f"cannot be read: {error}{meant}") from None


def home_of(agent_id: str, agents: Mapping[str, Any], home: HermesHome) -> HermesHome:
    """Return the home of an agent, which may be that of another."""
    seen = {agent_id}
    while agent_id != DEFAULT_AGENT:
        named = agent_entry(agent_id, agents.get(agent_id)).home
        if named not in agents and named != DEFAULT_AGENT:
            path = (home.root / "agents" / agent_id) if not named else home.inside(named)
            return home if path == home.root else HermesHome(root=path)
        agent_id = named
        if agent_id in seen:
            raise _wrong(agent_id, "shares a home in a circle")
        seen.add(agent_id)
    return home


def read_agent(agent_id: str, loaded: LoadedConfig, home: HermesHome) -> AgentConfig:
    """Return an agent of the configuration; `ConfigError` says why it cannot work."""
    agents = loaded.config.agents
    entry = agent_entry(agent_id, agents.get(agent_id))
    own_home = home_of(agent_id, agents, home)
    if own_home == home:
        variables: Mapping[str, str] = {}
        secrets, variable = loaded.secrets, loaded.variable
    else:
        variables = _own_variables(entry, own_home)
        lent = {name: value for name in entry.secrets if (value := loaded.secrets.get(name))}
        own = secrets_in_variables(variables, {})
        secrets = Secrets({**lent, **dict(own.items())})

        def variable(name: str) -> str | None:
            if name in variables:
                return variables[name] or None
            hidden = name in loaded.secrets or f"{name}.password" in loaded.secrets
            return loaded.variable(name) if not hidden or name in entry.secrets else None

    overlay = _overlay(agent_id, entry, {} if own_home == home else loaded.templates, variable)
    secrets = secrets.merged(secrets_in_config(overlay))

    def lay(general: Settings) -> Settings:
        if own_home != home:
            # What waits for a restart of the process keeps its old values, resolved for `main`.
            now = {key: getattr(loaded.config, key) for key in OF_MODELS}
            if any(getattr(general, key) is not each for key, each in now.items()):
                general = msgspec.structs.replace(general, **now)
        return _lay(agent_id, overlay, general)

    scope = AgentScope(
        lay,
        variable,
        dict(secrets.items()),
        env_file=None if own_home == home else own_home.env_file,
    )
    laid = scope.settings(loaded.config)  # raises if they cannot be laid over
    if own_home != home:
        _check_key(agent_id, entry, laid, loaded.templates, variable)
    return AgentConfig(
        id=agent_id,
        entry=entry,
        home=own_home,
        variables=variables,
        secret_names=secrets.names(),
        scope=None if own_home == home and not overlay else scope,
    )


def _own_variables(entry: AgentEntry, home: HermesHome) -> Mapping[str, str]:
    if entry.home and not home.root.is_dir():
        raise ConfigError(
            f"Its home {home.root} is missing.",
            hint="Make that directory, or change `home`.",
            public="Its home is missing.",
        )
    return read_env(home).values


def _check_key(
    agent_id: str,
    entry: AgentEntry,
    laid: Settings,
    templates: Mapping[str, Any],
    variable: Variable,
) -> None:
    """Refuse an agent whose calls would go out without the key that the general settings name."""
    choice, missing = laid.model, list[str]()
    at_provider = (templates.get("providers") or {}).get(choice.provider)
    written = [] if "api_key" in _model(entry) else [templates.get("model")]
    for each in (*written, at_provider):
        _expanded(each.get("api_key") if isinstance(each, Mapping) else None, variable, missing)
    provider = laid.providers.get(choice.provider)
    address = choice.base_url or (provider is not None and provider.base_url)
    given = choice.api_key or (provider is not None and provider.api_key) or variable(USUAL_KEY)
    if address and missing and not given:
        raise _wrong(
            agent_id,
            f"uses the general model, whose key is {missing[0]}, which this agent does not have",
            public="Something that it needs is not set.",
        )


def _overlay(
    agent_id: str, entry: AgentEntry, templates: Mapping[str, Any], variable: Variable
) -> dict[str, Any]:
    """Return the settings that are to be laid over the general ones."""
    missing: list[str] = []
    own = _expanded({**entry.settings, "model": _model(entry)}, variable, missing)
    if missing:
        raise _wrong(
            agent_id,
            f"refers to {', '.join(missing)}, which this agent does not have",
            public="Something that it needs is not set.",
        )
    if not own["model"]:
        del own["model"]
    if entry.backend:
        own["terminal"] = _merged(own.get("terminal") or {}, {"backend": entry.backend})
    used = {key: each for key, each in templates.items() if key not in {*GENERAL_ONLY, "platforms"}}
    overlay: dict[str, Any] = _merged(_expanded(used, variable, missing), own)
    return overlay


def _model(entry: AgentEntry) -> dict[str, Any]:
    written = entry.settings.get("model")
    given = entry.model if entry.model is not None else written
    model = dict(given) if isinstance(given, Mapping) else {"model": given}
    if "default" in model:
        model.setdefault("model", model.pop("default"))
    model = {key: value for key, value in model.items() if value}
    if entry.provider:
        model["provider"] = entry.provider
    if model.get("provider") or model.get("base_url"):
        # Another address: nothing of the general one goes there, its key least of all.
        blank = {"provider": "", "base_url": "", "api_key": "", "api_mode": ""}
        return {**blank, "context_length": None, **model}
    return {"context_length": None, **model} if model else {}


def _expanded(value: Any, variable: Variable, missing: list[str]) -> Any:
    """Replace `${NAME}` by what the agent has; what it does not have is left empty."""
    if isinstance(value, Mapping):
        return {key: _expanded(item, variable, missing) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_expanded(item, variable, missing) for item in value]
    if not isinstance(value, str) or "${" not in value:
        return value

    def found(match: re.Match[str]) -> str:
        given = variable(match[1]) or match[2]
        if given is None:
            missing.append(match[1])
        return given or ""

    return VARIABLE.sub(found, value)


def _lay(agent_id: str, overlay: Mapping[str, Any], general: Settings) -> Settings:
    if not overlay:
        return general
    name = f"agents.{agent_id}.settings"
    document = Document(name=name, data=dict(overlay))
    normalize(document)
    wrong = sorted(GENERAL_ONLY & document.data.keys())
    if wrong:
        raise _wrong(agent_id, f"cannot have `{wrong[0]}` for itself")
    sections = {key for key in document.data if hasattr(general, key)}
    document.data |= {
        key: _merged(_plain(getattr(general, key)), document.data[key]) for key in sections
    }
    checker = Checker(document)
    laid = checker.config()
    if problems := [*checker.errors, *(w for w in checker.warnings if w.key in checker.unknown)]:
        raise _wrong(agent_id, f"settings.{problems[0].key} {problems[0].text}")
    return msgspec.structs.replace(general, **{key: getattr(laid, key) for key in sections})


def _plain(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def _merged(lower: Any, upper: Any) -> Any:
    if not isinstance(lower, Mapping) or not isinstance(upper, Mapping):
        return upper
    return {**lower, **{key: _merged(lower.get(key), value) for key, value in upper.items()}}


def _wrong(agent_id: str, text: str, public: str = "") -> ConfigError:
    text = f"{format_key(('agents', agent_id))} {text}{'' if text.endswith('?') else '.'}"
    return ConfigError(text, hint="Fix it with: hermes config edit", public=public)
