"""References: `@file:PATH` and its kin are put into the message when it is sent.

    @file:PATH[:FROM-TO]   a text file, or some of its lines
    @folder:PATH           what is in a directory
    @diff  @staged         changes in the working tree, changes to be committed
    @git:N                 the last N commits with their changes
    @url:URL               a page, where the chat has a way to fetch one

Sizes are bounded, and files that usually hold secrets are refused. A reference
that cannot be followed stays in the text and is reported.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from fnmatch import fnmatch
from pathlib import Path

from msgspec import Struct

from hermes.domain.errors import HermesError, NotFound, UsageError
from hermes.entry.terminal.tty import read_regular, run_program

FILE_CHARS = 100_000
TOTAL_CHARS = 300_000
FOLDER_ENTRIES = 200
MAX_COMMITS = 10

_REFERENCE = re.compile(
    r"(?<![\w@])@(?:(?P<kind>file|folder|git|url):(?P<value>\"[^\"\n]+\"|\S+)|(?P<word>diff|staged)\b)"
)
_DOTS = re.compile(r"(?:^|/)\.\.?$")
"""`.` and `..` are names, not the end of a sentence."""
_LINES = re.compile(r"(?P<path>.+):(?P<first>\d+)(?:-(?P<last>\d+))?")
_SECRET_NAMES = (
    ".env", ".env.*", "*.pem", "*.key", "*.p12", "*.pfx", "*.kdbx", "id_rsa*", "id_dsa*",
    "id_ecdsa*", "id_ed25519*", ".netrc", "_netrc", ".npmrc", ".pypirc", ".pgpass", ".htpasswd",
    ".git-credentials", "credentials", "credentials.*", "auth.json", "secrets.*", "shadow",
)  # fmt: skip
_SECRET_FOLDERS = frozenset({".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker"})
_HARMLESS_NAMES = (".env.example", ".env.sample", ".env.template", "*.pub")


class Reference(Struct, frozen=True, kw_only=True):
    kind: str
    value: str
    written: str
    """As it stands in the text."""


class Expanded(Struct, frozen=True, kw_only=True):
    added: str = ""
    """What the references stand for; goes below the message."""
    taken: tuple[str, ...] = ()
    """One line for each reference that was followed."""
    problems: tuple[str, ...] = ()


def find_references(text: str) -> list[Reference]:
    found: dict[str, Reference] = {}
    for match in _REFERENCE.finditer(text):
        kind = match["kind"] or match["word"]
        value = match["value"] or ""
        written = match[0]
        if value.startswith('"'):
            value = value.strip('"')
        else:
            trimmed = value if _DOTS.search(value) else value.rstrip(".,;!?)")
            written = written[: len(written) - (len(value) - len(trimmed))]
            value = trimmed
        if kind in ("diff", "staged") or value:
            found.setdefault(written, Reference(kind=kind, value=value, written=written))
    return list(found.values())


def is_secret(path: Path) -> bool:
    """Say whether a file usually holds secrets, going by its name and place."""
    name = path.name.lower()
    if any(fnmatch(name, pattern) for pattern in _HARMLESS_NAMES):
        return False
    if any(part in _SECRET_FOLDERS for part in path.parts):
        return True
    return any(fnmatch(name, pattern) for pattern in _SECRET_NAMES)


class ReferenceReader(Struct, frozen=True, kw_only=True):
    cwd: Path
    environ: Mapping[str, str]
    fetch_url: Callable[[str], Awaitable[str]] | None = None

    async def expand(self, text: str) -> Expanded:
        blocks: list[str] = []
        taken: list[str] = []
        problems: list[str] = []
        room = TOTAL_CHARS
        for reference in find_references(text):
            try:
                content = await self._content(reference)
            except HermesError as error:
                problems.append(f"{reference.written}: {error.message} {error.hint}".rstrip())
                continue
            if len(content) > room:
                problems.append(f"{reference.written}: it no longer fits into the message.")
                continue
            room -= len(content)
            blocks.append(f"{reference.written}\n{_fenced(content)}")
            taken.append(f"{reference.written} ({len(content):,} characters)")
        added = "\n\n".join(["\nReferenced above:", *blocks]) if blocks else ""
        return Expanded(added=added, taken=tuple(taken), problems=tuple(problems))

    async def _content(self, reference: Reference) -> str:
        match reference.kind:
            case "file":
                return await asyncio.to_thread(self._file, reference.value)
            case "folder":
                return await asyncio.to_thread(self._folder, reference.value)
            case "diff":
                return await self._git("diff", "HEAD")
            case "staged":
                return await self._git("diff", "--staged")
            case "git":
                return await self._commits(reference.value)
        return await self._page(reference.value)

    def _file(self, value: str) -> str:
        path, first, last = self._file_and_lines(value)
        real = path.resolve()
        if is_secret(real) or is_secret(path):
            raise UsageError("it looks like a file with secrets and is not sent.")
        try:
            data = read_regular(real, FILE_CHARS * 4 + 1)
        except OSError as error:
            raise NotFound(f"it cannot be read ({error.strerror}).") from error
        if b"\x00" in data[:8192]:
            raise UsageError("it is not a text file.")
        text = data.decode(errors="replace")
        if first is not None:
            text = "\n".join(text.splitlines()[first - 1 : last])
        return _bounded(text)

    def _file_and_lines(self, value: str) -> tuple[Path, int | None, int | None]:
        path = self._path(value)
        lines = _LINES.fullmatch(value)
        if lines is None or path.exists():
            return path, None, None
        first = max(1, int(lines["first"]))
        return self._path(lines["path"]), first, int(lines["last"] or first)

    def _path(self, value: str) -> Path:
        return self.cwd / Path(value).expanduser()

    def _folder(self, value: str) -> str:
        folder = self._path(value)
        try:
            entries = sorted(folder.iterdir(), key=lambda path: (path.is_file(), path.name))
        except OSError as error:
            raise NotFound(f"it cannot be listed ({error.strerror}).") from error
        lines = [f"{path.name}/" if path.is_dir() else path.name for path in entries]
        if len(lines) > FOLDER_ENTRIES:
            more = len(lines) - FOLDER_ENTRIES
            lines = [*lines[:FOLDER_ENTRIES], f"… and {more} more"]
        return "\n".join(lines) or "(empty)"

    async def _commits(self, value: str) -> str:
        if not value.isdecimal() or not 1 <= int(value) <= MAX_COMMITS:
            raise UsageError(f"the number of commits is 1 to {MAX_COMMITS}.")
        return await self._git("log", f"-{value}", "--patch", "--stat")

    async def _git(self, *arguments: str) -> str:
        argv = ("git", "--no-pager", *arguments, "--no-color", "--no-ext-diff")
        environ = await asyncio.to_thread(_without_project, self.environ, self.cwd)
        result = await run_program(argv, environ=environ, cwd=self.cwd)
        if result is None:
            raise NotFound("git is not installed or did not answer.")
        if result.code != 0:
            raise NotFound(f"git says: {result.errors.splitlines()[0] if result.errors else '?'}")
        return _bounded(result.output.decode(errors="replace")) or "(no changes)"

    async def _page(self, url: str) -> str:
        if self.fetch_url is None:
            raise UsageError("pages cannot be fetched here.")
        if not url.startswith(("http://", "https://")):
            raise UsageError("only http and https are fetched.")
        return _bounded(await self.fetch_url(url))


def _without_project(environ: Mapping[str, str], cwd: Path) -> dict[str, str]:
    """Leave the project out of PATH: commands in the sandbox may have put a `git` there."""
    here = cwd.resolve()
    root = next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)
    places = (place for place in environ.get("PATH", "").split(":") if place.startswith("/"))
    path = ":".join(place for place in places if not Path(place).resolve().is_relative_to(root))
    return {**environ, "PATH": path}


def _bounded(text: str) -> str:
    if len(text) <= FILE_CHARS:
        return text
    return f"{text[:FILE_CHARS]}\n… cut here: {len(text) - FILE_CHARS:,} characters more"


def _fenced(text: str) -> str:
    """Put text into a fence that its own backticks cannot close."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text.rstrip()}\n{fence}"
