"""Adding, removing and renaming agents: their entry in config.yaml, and the files of their home.

What names an agent elsewhere in config.yaml (`agent:` of routes, of accounts and webhooks,
`default_agent`, `home:` of an agent that shares its home, `agents:` of those who may be asked) is
found in the text as it is written, in whichever of the places it stands.
"""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path as FilePath
from typing import Any

from hermes.config.agents import agent_entry, check_id, home_of
from hermes.config.document import Path, format_key, parse_document
from hermes.config.edit import Change, Renamed, change_values, read_text
from hermes.config.paths import HermesHome
from hermes.domain.errors import ConfigError, Conflict, NotFound, UsageError
from hermes.domain.profile import DEFAULT_AGENT

_NAMING = frozenset({"agent", "agent_id", "profile", "default_agent"})
_ROUTES = frozenset({"routes", "profile_routes"})
CLONED = ("SOUL.md", "memories", "skills")
"""What a copy of an agent gets of its home; `.env` only if that is asked for."""


def written(home: HermesHome) -> dict[str, Any]:
    """Return config.yaml as it is written."""
    return parse_document(read_text(home).encode(), "config.yaml").data


def agents_of(data: Mapping[str, Any]) -> dict[str, Any]:
    agents = data.get("agents")
    return dict(agents) if isinstance(agents, Mapping) else {}


def named_at(data: Any, agent_id: str, path: Path = ()) -> Iterator[Path]:
    """Yield the places that name an agent, in the order of the file."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            inside = (*path, str(key))
            if isinstance(value, str):
                shared = key == "home" and path[:1] == ("agents",) and len(path) == 2
                if (key in _NAMING or shared) and value.strip().removeprefix("hermes/") == agent_id:
                    yield inside
            else:
                yield from named_at(value, agent_id, inside)
    elif isinstance(data, list):
        asked = path[-2:] == ("ask_agent", "agents")
        for at, value in enumerate(data):
            if asked and value == agent_id:
                yield (*path, str(at))
            yield from named_at(value, agent_id, (*path, str(at)))


def is_route(path: Path) -> bool:
    return len(path) >= 3 and path[-3] in _ROUTES


def add_agent(
    home: HermesHome,
    agent_id: str,
    entry: Mapping[str, Any],
    *,
    clone: str = "",
    with_env: bool = False,
    environ: Mapping[str, str],
) -> HermesHome:
    """Add an agent, as a copy of another if that is wished, and make its home."""
    check_id(agent_id)
    data = written(home)
    agents = agents_of(data)
    if agent_id in agents or agent_id == DEFAULT_AGENT:
        raise Conflict(
            f"There is an agent `{agent_id}` already.",
            hint=f"See it with: hermes agent show {agent_id}",
        )
    source = None
    if clone:
        check_known(agents, clone)
        source = home_of(clone, agents, home)
        entry = {**_copied_entry(agents.get(clone), with_env=with_env), **entry}
    agent_entry(agent_id, entry)
    own = home_of(agent_id, {**agents, agent_id: entry}, home)
    fresh = own != home and entry.get("home") not in {*agents, DEFAULT_AGENT}
    if fresh and source is not None and own.root.is_dir() and any(own.root.iterdir()):
        raise Conflict(
            f"{own.root} has files already.", hint="Move them away, or give --home another place."
        )
    made = fresh and not own.root.exists()
    try:
        if fresh:
            own.ensure()
            if source is not None:
                _copy_files(source, own, (*CLONED, *([".env"] if with_env else ())))
        keys = ("agents", agent_id)
        changes: list[Change] = [((*keys, key), value) for key, value in entry.items()]
        change_values(home, changes or [(keys, {})], environ=environ)
    except BaseException:
        if made:
            shutil.rmtree(own.root, ignore_errors=True)
        raise
    return own


def remove_agent(
    home: HermesHome, agent_id: str, *, routes: bool, environ: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """Remove an agent, with the routes to it if wished; return what was removed and what is left.

    What is left names an agent that is not there, and refuses messages.
    """
    data = written(home)
    agents = agents_of(data)
    check_known(agents, agent_id)
    if agent_id == DEFAULT_AGENT:
        raise UsageError("The agent `main` cannot be removed: its home is the Hermes home.")
    places = list(named_at(data, agent_id))
    sharing = [path[1] for path in places if path[0] == "agents" and path[-1] == "home"]
    if sharing:
        raise Conflict(
            f"{', '.join(sharing)} shares the home of `{agent_id}`.",
            hint="Remove that one first, or change its `home`.",
        )
    asked = [path for path in places if path[0] == "agents" and path[1] == agent_id]
    going = [path[:-1] for path in places if routes and is_route(path)]
    # From the end, so that the places of the others stay what they are.
    changes: list[Change] = [(path, None) for path in reversed(going)]
    lists = [path for path in places if path[-2:-1] == ("agents",) and path not in asked]
    changes += [(path, None) for path in reversed(lists)]
    change_values(home, [*changes, (("agents", agent_id), None)], environ=environ)
    left = [
        format_key(path)
        for path in places
        if path not in asked and path not in lists and path[:-1] not in going
    ]
    return [format_key(path) for path in going], left


def rename_changes(data: Mapping[str, Any], old: str, new: str) -> list[Change]:
    """Return the changes of config.yaml by which an agent gets another name."""
    changes: list[Change] = [(path, new) for path in named_at(data, old)]
    return [*changes, (("agents", old), Renamed(new))]


def check_known(agents: Mapping[str, Any], agent_id: str) -> None:
    if agent_id != DEFAULT_AGENT and agent_id not in agents:
        known = ", ".join(f"`{each}`" for each in (DEFAULT_AGENT, *agents))
        raise NotFound(f"There is no agent `{agent_id}`.", hint=f"There are: {known}.")


def _copied_entry(entry: Any, *, with_env: bool) -> dict[str, Any]:
    left_out = {"home"} if with_env else {"home", "secrets"}
    given = entry if isinstance(entry, Mapping) else {}
    return {key: value for key, value in given.items() if key not in left_out}


def _copy_files(source: HermesHome, target: HermesHome, names: tuple[str, ...]) -> None:
    try:
        for name in names:
            old, new = source.root / name, target.root / name
            if old.is_dir():
                shutil.copytree(old, new, ignore_dangling_symlinks=True)
            elif old.is_file():
                shutil.copy2(old, new)
    except (OSError, shutil.Error) as error:
        raise ConfigError(f"{source.root} cannot be copied: {error}") from error


def move_home(old: FilePath, new: FilePath) -> bool:
    """Give a home another place; False if there is none."""
    if not old.is_dir():
        return False
    try:
        new.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        old.rename(new)
    except OSError as error:
        raise ConfigError(f"{old} cannot be moved to {new}: {error.strerror}.") from error
    return True
