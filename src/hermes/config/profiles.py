"""Profiles: separate installs, each a Hermes home of its own below `profiles/` of the first one.

Which one a command works on: `-p NAME`, else the home that `HERMES_HOME` names if that is a
profile, else the one that `hermes profile use` chose (the file `active_profile`), else the first.

An archive (`export_profile`, `.tar.gz`) has what makes an install, not what it has done:
configuration, SOUL.md, memories, skills, jobs, hooks, scripts, and the same of its agents. Without
being asked for them it has no secrets: no `.env`, and none of their values in any file. Reading
one (`import_profile`) trusts nothing: plain files and folders only, below the profile, of known
names, within limits of number and size; it is put together beside the profiles and appears whole.
"""

import gzip
import io
import re
import shutil
import tarfile
import tempfile
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

FIRST = "default"
"""What the install is called that has the others below it."""
RESERVED = frozenset({FIRST, "hermes", "main", "all", "none", "profile", "profiles"})
OF_AGENT = ("SOUL.md", "memories", "skills", "cron/jobs.json")
OF_HOME = ("config.yaml", *OF_AGENT, "hooks", "scripts", "skins")
TELLING = 8
"""Shorter secrets may be words: they are taken out where they stand for themselves."""
MAX_FILES, MAX_BYTES = 20_000, 256_000_000


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
    agents = home.agents_dir
    for agent in sorted(agents.iterdir()) if agents.is_dir() and not agents.is_symlink() else ():
        if AGENT_ID.fullmatch(agent.name) and agent.is_dir() and not agent.is_symlink():
            yield from _below(agent, (*OF_AGENT, *secret), f"agents/{agent.name}/")


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
    home: HermesHome, target: Path, *, environ: Mapping[str, str], with_secrets: bool = False
) -> int:
    """Write the archive of a profile; return how many files it has."""
    hidden = None if with_secrets else _known_secrets(home, environ)
    data, number = io.BytesIO(), 0
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for path, name in _files(home, with_secrets=with_secrets):
            content = path.read_bytes()
            if hidden is not None:
                content = _without_secrets(home, name, content, hidden)
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), 0o700 if path.stat().st_mode & 0o100 else 0o600
            info.mtime = int(path.stat().st_mtime)
            archive.addfile(info, io.BytesIO(content))
            number += 1
    write_atomic(target, data.getvalue())
    return number


def _known_secrets(home: HermesHome, environ: Mapping[str, str]) -> Secrets:
    found = inspect_config(home, environ).secrets
    agents = home.agents_dir
    for agent in agents.iterdir() if agents.is_dir() else ():
        if agent.is_dir():
            own = read_env(HermesHome(root=agent)).values
            found = found.merged(secrets_in_variables(own, {}))
    return found


def _without_secrets(home: HermesHome, name: str, content: bytes, secrets: Secrets) -> bytes:
    values = sorted({value for _, value in secrets.items() if value}, key=len)[::-1]
    if name == "config.yaml":
        text = read_text(home)
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
            if "config.yaml" in names:
                parse_document((folder / "config.yaml").read_bytes(), "config.yaml")
    except (OSError, EOFError, tarfile.TarError, ValueError) as error:
        raise ConfigError(
            f"{archive} cannot be read: {error}", hint="It is a .tar.gz of hermes profile export."
        ) from error
    return home, names


_ALLOWED = re.compile(
    rf"(?:agents/{AGENT_ID.pattern}/)?(?:SOUL\.md|\.env|(?:memories|skills)/.+|cron/jobs\.json)"
    r"|config\.yaml|(?:hooks|scripts|skins)/.+"
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
