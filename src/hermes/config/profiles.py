"""Profiles: separate installs, each a Hermes home of its own below `profiles/` of the first one.

Which one a command works on: `-p NAME`, else the home that `HERMES_HOME` names if that is a
profile, else the one that `hermes profile use` chose (the file `active_profile`), else the first.

An archive (`export_profile`, `.tar.gz`) has what makes an install, not what it has done:
configuration, SOUL.md, memories, skills, jobs, hooks, scripts, and the same of its agents; on
request its conversations, which a file of JSON lines holds. Without
being asked for them it has no secrets: no `.env`, and none of their values in any file. Reading
one (`import_profile`) trusts nothing: plain files and folders only, below the profile, of known
names, within limits of number and size; it is put together beside the profiles and appears whole.

A copy and an archive have the agents that the configuration names, each below `agents/`, wherever
its home is: two installs never work in one home.
"""

import gzip
import io
import re
import shutil
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from hermes.config.agents import AGENT_ID
from hermes.config.atomic import write_atomic
from hermes.config.document import Path as Key
from hermes.config.document import parse_document
from hermes.config.edit import apply_change, read_text
from hermes.config.loader import inspect_config, read_env
from hermes.config.paths import ACTIVE_PROFILE, HermesHome
from hermes.config.secrets import Secrets, secrets_in_variables
from hermes.domain.errors import ConfigError, Conflict, NotFound, UsageError
from hermes.domain.profile import DEFAULT_AGENT

FIRST = "default"
"""What the install is called that has the others below it."""
RESERVED = frozenset({FIRST, "hermes", "main", "all", "none", "profile", "profiles"})
OF_AGENT = ("SOUL.md", "memories", "skills", "cron/jobs.json")
CONFIG = "config.yaml"
OF_HOME = (CONFIG, *OF_AGENT, "hooks", "scripts", "skins")
TELLING = 8
"""Shorter secrets may be words: they are taken out where they stand for themselves."""
MAX_FILES, MAX_BYTES = 20_000, 256_000_000
SESSIONS = "sessions.jsonl"
"""The conversations in an archive."""


def check_name(name: str) -> str:
    if not AGENT_ID.fullmatch(name) or name in RESERVED:
        raise UsageError(
            f"`{name}` cannot be the name of a profile.",
            hint="It has small letters, digits, `-` and `_`, at most 64, and is no reserved word"
            f" ({', '.join(sorted(RESERVED))}).",
        )
    return name


def profile_names(first: HermesHome) -> list[str]:
    folder = first.root / "profiles"
    names = (each.name for each in folder.iterdir() if each.is_dir()) if folder.is_dir() else ()
    return sorted(name for name in names if AGENT_ID.fullmatch(name))


def existing_profile(first: HermesHome, name: str) -> HermesHome:
    if name == FIRST:
        return first
    home = first.profile(name)
    if not AGENT_ID.fullmatch(name) or not home.root.is_dir():
        known = ", ".join((FIRST, *profile_names(first)))
        raise NotFound(
            f"There is no profile `{name}`.",
            hint=f"There are: {known}. Make it with: hermes profile create NAME",
        )
    return home


def use(first: HermesHome, name: str) -> None:
    existing_profile(first, name)
    if name == FIRST:
        (first.root / ACTIVE_PROFILE).unlink(missing_ok=True)
    else:
        write_atomic(first.ensure().root / ACTIVE_PROFILE, f"{name}\n")


def create(first: HermesHome, name: str) -> HermesHome:
    home = _new(first, name).ensure()
    for folder in (home.memories_dir, home.skills_dir):
        folder.mkdir(mode=0o700, exist_ok=True)
    return home


def clone(
    first: HermesHome, source: HermesHome, name: str, *, with_env: bool = False
) -> HermesHome:
    """Make a profile of what another one is, without what it has done."""
    home = _new(first, name)
    with _put_together(home) as folder:
        for path, inside in _files(source, with_secrets=with_env):
            target = folder / inside
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            shutil.copy2(path, target)
            if inside == CONFIG:
                target.write_bytes(_at_home(source, path.read_bytes()))
    return home


def delete(first: HermesHome, name: str) -> None:
    home = existing_profile(first, check_name(name))
    if active(first) == name:
        use(first, FIRST)
    shutil.rmtree(home.root)


def active(first: HermesHome) -> str:
    return first.active_profile() or FIRST


def _new(first: HermesHome, name: str) -> HermesHome:
    home = first.profile(check_name(name))
    if home.root.exists():
        raise Conflict(f"There is a profile `{name}` already.", hint=f"It is in {home.root}.")
    return home


@contextmanager
def _put_together(home: HermesHome) -> Iterator[Path]:
    """Yield a folder beside the profiles that becomes the new home if all goes well."""
    parent = home.root.parent
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".new-", dir=parent))
    try:
        yield folder
        folder.rename(home.root)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _files(home: HermesHome, *, with_secrets: bool) -> Iterator[tuple[Path, str]]:
    """Yield the files that make an install, and their names in it. Links are left out."""
    secret = (".env",) if with_secrets else ()
    yield from _below(home.root, (*OF_HOME, *secret), "")
    for agent, place in _agent_homes(home).items():
        if place.is_dir() and not place.is_symlink() and not home.agents_dir.is_symlink():
            yield from _below(place, (*OF_AGENT, *secret), f"agents/{agent}/")


def _agent_homes(home: HermesHome) -> dict[str, Path]:
    """Return the agents that have a home of their own, and where it is."""
    agents = _agents(parse_document(read_text(home).encode(), CONFIG).data)
    found = {}
    for agent, entry in sorted(agents.items()):
        named = entry.get("home") if isinstance(entry, dict) else None
        if AGENT_ID.fullmatch(str(agent)) and named not in (*agents, DEFAULT_AGENT):
            place = home.inside(named) if isinstance(named, str) and named else None
            found[str(agent)] = place or home.agents_dir / str(agent)
    return found


def _agents(data: Any) -> dict[str, Any]:
    agents = data.get("agents") if isinstance(data, dict) else None
    return agents if isinstance(agents, dict) else {}


def _at_home(home: HermesHome, content: bytes) -> bytes:
    """Return a configuration whose agents live below it, as the files of a copy do."""
    homes, text = _agent_homes(home), content.decode().replace("\r\n", "\n")
    for agent, entry in _agents(parse_document(content, CONFIG).data).items():
        work = entry.get("workspace") if isinstance(entry, dict) else None
        keys = ["home"] if agent in homes and isinstance(entry, dict) and entry.get("home") else []
        if isinstance(work, str) and agent in homes and Path(work).is_absolute():
            there = Path(work)
            keys += ["workspace"] * any(map(there.is_relative_to, (home.root, homes[agent])))
        for key in keys:
            text = apply_change(text, ("agents", str(agent), key), "")
    return text.encode()


def _below(root: Path, names: tuple[str, ...], prefix: str) -> Iterator[tuple[Path, str]]:
    for name in names:
        start = root / name
        found = sorted(start.rglob("*")) if start.is_dir() else [start]
        for path in found:
            inside = path.relative_to(root)
            ways = [root.joinpath(*inside.parts[: n + 1]) for n in range(len(inside.parts))]
            if path.is_file() and not any(each.is_symlink() for each in ways):
                yield path, prefix + inside.as_posix()


# -- archives ------------------------------------------------------------------


def export_profile(
    home: HermesHome, target: Path, secrets: Secrets | None, sessions: bytes | None = None
) -> int:
    """Write the archive of a profile without these secrets; return how many files it has."""
    data, number = io.BytesIO(), 0
    with tarfile.open(fileobj=data, mode="w:gz") as archive:

        def add(name: str, content: bytes, mode: int, at: float) -> None:
            info = tarfile.TarInfo(name)
            info.size, info.mode, info.mtime = len(content), mode, int(at)
            archive.addfile(info, io.BytesIO(content))

        for path, name in _files(home, with_secrets=secrets is None):
            content, status = path.read_bytes(), path.stat()
            content = _at_home(home, content) if name == CONFIG else content
            if secrets is not None:
                content = _without_secrets(name, content, secrets)
            add(name, content, 0o700 if status.st_mode & 0o100 else 0o600, status.st_mtime)
            number += 1
        if sessions is not None:
            add(SESSIONS, sessions, 0o600, time.time())
    write_atomic(target, data.getvalue())
    return number + (sessions is not None)


def known_secrets(home: HermesHome, environ: Mapping[str, str]) -> Secrets:
    """Return the secrets of a home and of all agents, also of those that were removed."""
    found, below = inspect_config(home, environ).secrets, home.agents_dir
    places = [each for each in below.iterdir() if each.is_dir()] if below.is_dir() else []
    for place in {*places, *_agent_homes(home).values()}:
        own = read_env(HermesHome(root=place)).values
        found = found.merged(secrets_in_variables(own, {}))
    return found


def _without_secrets(name: str, content: bytes, secrets: Secrets) -> bytes:
    values = sorted({value for _, value in secrets.items() if value}, key=len)[::-1]
    if name == CONFIG:
        text = content.decode().replace("\r\n", "\n")
        for key in list(_keys_with(parse_document(content, name).data, values)):
            text = apply_change(text, key, "")
        content = text.encode()
    for value in (each for each in values if len(each) >= TELLING):
        content = content.replace(value.encode(), b"REDACTED")
    return content


def _keys_with(data: Any, values: list[str], key: Key = ()) -> Iterator[Key]:
    inside = (
        data.items()
        if isinstance(data, dict)
        else enumerate(data)
        if isinstance(data, list)
        else ()
    )
    for name, item in inside:
        if isinstance(item, dict | list):
            yield from _keys_with(item, values, (*key, str(name)))
        elif isinstance(item, str) and any(
            item == value or (len(value) >= TELLING and value in item) for value in values
        ):
            yield (*key, str(name))


class _Bounded(io.RawIOBase):
    """A stream that ends with an error after so many bytes, whatever its headers promise."""

    def __init__(self, stream: Any, limit: int) -> None:
        super().__init__()
        self._stream, self._left = stream, limit

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._stream.read(min(size, 1 << 20) if size >= 0 else 1 << 20)
        self._left -= len(data)
        if self._left < 0:
            raise UsageError(f"The archive holds more than {MAX_BYTES // 1_000_000} MB.")
        return data


def import_profile(first: HermesHome, archive: Path, name: str) -> tuple[HermesHome, list[str]]:
    """Make a profile of an archive; return it and the names of its files."""
    home, names = _new(first, name), []
    try:
        with (
            gzip.open(archive) as stream,
            tarfile.open(fileobj=_Bounded(stream, MAX_BYTES), mode="r|") as tar,
            _put_together(home) as folder,
        ):
            for number, member in enumerate(tar):
                if number >= MAX_FILES:
                    raise UsageError(f"The archive holds more than {MAX_FILES} files.")
                inside = _checked_name(member)
                if member.isdir():
                    continue
                content = tar.extractfile(member)
                assert content is not None
                target = folder / inside
                target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                with target.open("xb") as file:
                    shutil.copyfileobj(content, file)
                target.chmod(0o700 if member.mode & 0o100 else 0o600)
                names.append(str(inside))
            if CONFIG in names:
                _check_homes(home, parse_document((folder / CONFIG).read_bytes(), CONFIG).data)
    except (OSError, EOFError, tarfile.TarError, ValueError) as error:
        raise ConfigError(
            f"{archive} cannot be read: {error}", hint="It is a .tar.gz of hermes profile export."
        ) from error
    return home, names


def _check_homes(home: HermesHome, data: Any) -> None:
    """Refuse agents of somebody else's configuration that would live in another install."""
    agents = _agents(data)
    for agent, entry in agents.items():
        named = str((isinstance(entry, dict) and entry.get("home")) or "")
        away = "$" in named or not home.inside(named).is_relative_to(home.root)
        if away and named not in (*agents, DEFAULT_AGENT):
            raise UsageError(
                f"The agent `{agent}` of the archive has its home outside of the profile: {named}",
                hint=f"Import it without `agents.{agent}.home`: it then lives in agents/{agent}.",
            )


_ALLOWED = re.compile(
    rf"(?:agents/{AGENT_ID.pattern}/)?(?:SOUL\.md|\.env|(?:memories|skills)/.+|cron/jobs\.json)"
    r"|config\.yaml|sessions\.jsonl|(?:hooks|scripts|skins)/.+"
)


def _checked_name(member: tarfile.TarInfo) -> PurePosixPath:
    name = member.name.removeprefix("./").rstrip("/")
    path = PurePosixPath(name)
    plain = (member.isreg() and not member.issparse()) or member.isdir()
    strange = path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name
    if not plain or strange:
        raise UsageError(
            f"The archive holds `{member.name}`, which is a link or leads elsewhere.",
            hint="Nothing was imported.",
        )
    if not member.isdir() and not _ALLOWED.fullmatch(name):
        raise UsageError(
            f"The archive holds `{member.name}`, which is no part of a profile.",
            hint="Nothing was imported.",
        )
    return path
