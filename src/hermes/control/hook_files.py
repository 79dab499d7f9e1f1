"""File hooks: `hooks/<name>/{HOOK.yaml,handler.py}`, run only with a person's consent.

The agent can write to its home, so a hook is loaded only if a person enabled it
with `hermes hooks enable` and its files are byte for byte what they were then.
The bytes that were checked are the bytes that run.
"""

import hashlib
import logging
import os
import stat
import time
from pathlib import Path
from types import ModuleType
from typing import cast

import msgspec
import yaml
from msgspec import Struct
from msgspec.structs import replace

from hermes.config.atomic import editing, write_json
from hermes.config.paths import HermesHome
from hermes.control.hooks import SELECT_AGENT, Handler, HookBus, is_event
from hermes.domain.errors import ConfigError, NotFound

log = logging.getLogger(__name__)

ALLOWLIST = "hooks-allowlist.json"
MANIFEST = "HOOK.yaml"
HANDLER = "handler.py"
MAX_BYTES = 1_000_000


class Consent(Struct, frozen=True, kw_only=True):
    sha256: str
    enabled_at: float
    events: tuple[str, ...] = ()
    """What it received then; empty in files of earlier versions."""


class HookFile(Struct, frozen=True, kw_only=True):
    name: str
    folder: Path
    description: str = ""
    events: tuple[str, ...] = ()
    sha256: str = ""
    source: bytes = b""
    problem: str = ""
    """What keeps it from running; empty: it is enabled."""
    consented: bool = False
    """A person enabled it, as it is or as it was."""

    @property
    def missed(self) -> bool:
        """Whether it was to choose agents and does not run: then nobody is chosen."""
        return self.consented and bool(self.problem) and SELECT_AGENT in self.events


class _Manifest(Struct, frozen=True, kw_only=True):
    name: str = ""
    description: str = ""
    events: tuple[str, ...] = ()


def hook_files(home: HermesHome) -> list[HookFile]:
    """Return all hooks of a home, with what keeps each from running."""
    consents = _consents(home)
    folder = home.hooks_dir
    names = sorted(p.name for p in folder.iterdir() if p.is_dir()) if folder.is_dir() else []
    there = [name for name in names if not name.startswith((".", "_"))]
    return [_read(folder / name, consents.get(name)) for name in sorted({*there, *consents})]


def enable_hook(home: HermesHome, name: str) -> HookFile:
    """Record a person's consent to run a hook as its files are now."""
    with editing(home):
        hook = _read(_find(home, name).folder, None)
        if not hook.sha256:
            raise ConfigError(f"The hook {name} cannot be enabled: {hook.problem}.")
        consent = Consent(sha256=hook.sha256, enabled_at=time.time(), events=hook.events)
        _write(home, {**_consents(home), name: consent})
    return _find(home, name)


def disable_hook(home: HermesHome, name: str) -> None:
    with editing(home):
        consents = _consents(home)
        if name not in consents:
            raise NotFound(f"The hook {name} is not enabled.", hint="See: hermes hooks list")
        _write(home, {k: consent for k, consent in consents.items() if k != name})


def load_hooks(home: HermesHome, bus: HookBus) -> tuple[str, ...]:
    """Register all enabled hooks of a home; return a warning for each that cannot run."""
    warnings = []
    for hook in hook_files(home):
        handler = None
        if not hook.problem:
            try:
                handler = _handler(hook)
            except Exception as error:  # the boundary of a hook: somebody else's code
                log.exception("hook %s cannot be loaded", hook.name)
                hook = replace(hook, problem=f"it cannot be loaded: {error}")  # noqa: PLW2901
        if handler is None:
            warnings.append(hook_warning(hook))
            if hook.missed:
                bus.missing[f"The hook {hook.name}"] = f"{hook.problem}."
            continue
        for event in hook.events:
            bus.on(event, handler, name=hook.name)
    return tuple(warnings)


def hook_warning(hook: HookFile) -> str:
    refused = " Until then messages that no route is about are refused." if hook.missed else ""
    return f"The hook {hook.name} does not run: {hook.problem}.{refused}"


def _handler(hook: HookFile) -> Handler:
    module = ModuleType(f"hermes_hook_{hook.name}")
    path = str(hook.folder / HANDLER)
    module.__file__ = path
    exec(compile(hook.source, path, "exec"), module.__dict__)  # noqa: S102 - a person enabled it
    handler = module.__dict__.get("handle")
    if not callable(handler):
        raise ConfigError("handler.py has no function `handle(event_type, context)`")
    return cast("Handler", handler)


def _find(home: HermesHome, name: str) -> HookFile:
    found = next((hook for hook in hook_files(home) if hook.name == name), None)
    if found is None:
        raise NotFound(
            f"There is no hook {name} in {home.hooks_dir}.", hint="See: hermes hooks list"
        )
    return found


def _read(folder: Path, consent: Consent | None) -> HookFile:
    try:
        contents = _contents(folder)
        manifest = _manifest(contents)
    except (ConfigError, OSError) as error:
        gone = consent is not None and not folder.exists()
        problem = f"its folder is gone; see `hermes hooks disable {folder.name}`"
        return HookFile(
            name=folder.name,
            folder=folder,
            events=consent.events if consent else (),
            problem=problem if gone else _sentence(error),
            consented=consent is not None,
        )
    digest = _digest(contents)
    # Also what it was to receive before it was changed.
    known = consent.events if consent and consent.sha256 != digest else ()
    return HookFile(
        name=folder.name,
        folder=folder,
        description=manifest.description,
        events=tuple(dict.fromkeys((*manifest.events, *known))),
        sha256=digest,
        source=contents[HANDLER],
        problem=_problem(folder.name, digest, consent),
        consented=consent is not None,
    )


def _problem(name: str, digest: str, consent: Consent | None) -> str:
    command = f"`hermes hooks enable {name}`"
    if consent is None:
        return f"nobody has enabled it yet; read it, then {command}"
    if consent.sha256 != digest:
        return f"its files have changed since it was enabled; read them, then {command}"
    return ""


def _contents(folder: Path) -> dict[str, bytes]:
    """Read every file of a hook, refusing what somebody else could change."""
    _check_owner(folder, folder.lstat())
    found: dict[str, bytes] = {}
    total = 0
    for path in sorted(folder.iterdir()):
        status = path.lstat()
        if path.name == "__pycache__":
            continue
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"{path.name} is not a plain file")
        _check_owner(path, status)
        total += status.st_size
        if total > MAX_BYTES:
            raise ConfigError("its files are larger than a megabyte")
        found[path.name] = path.read_bytes()
    for name in (MANIFEST, HANDLER):
        if name not in found:
            raise ConfigError(f"it has no {name}")
    return found


def _check_owner(path: Path, status: os.stat_result) -> None:
    if status.st_uid not in {os.geteuid(), 0}:
        raise ConfigError(f"{path.name} belongs to somebody else")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigError(f"{path.name} can be written by others (chmod go-w {path})")


def _manifest(contents: dict[str, bytes]) -> _Manifest:
    try:
        manifest = msgspec.convert(yaml.safe_load(contents[MANIFEST]) or {}, _Manifest)
    except (yaml.YAMLError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise ConfigError(f"{MANIFEST} is not valid: {error}") from error
    unknown = [event for event in manifest.events if not is_event(event)]
    if unknown or not manifest.events:
        what = f"asks for the unknown event {unknown[0]}" if unknown else "asks for no event"
        raise ConfigError(f"{MANIFEST} {what}")
    return manifest


def _digest(contents: dict[str, bytes]) -> str:
    whole = hashlib.sha256()
    for name, content in sorted(contents.items()):
        whole.update(hashlib.sha256(name.encode()).digest() + hashlib.sha256(content).digest())
    return whole.hexdigest()


def _consents(home: HermesHome) -> dict[str, Consent]:
    path = home.root / ALLOWLIST
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, dict[str, Consent]])["hooks"]
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError, KeyError) as error:
        raise ConfigError(
            f"{path} cannot be read: {error}.", hint="Delete it and enable the hooks again."
        ) from error


def _write(home: HermesHome, consents: dict[str, Consent]) -> None:
    write_json(home.root / ALLOWLIST, {"hooks": consents})


def _sentence(error: Exception) -> str:
    if isinstance(error, ConfigError):
        return error.message
    return getattr(error, "strerror", None) or str(error)
