"""`hermes profile`: separate installs side by side, each with a home of its own."""

import asyncio
import os
import shlex
import shutil
import sys
from pathlib import Path

import click
import msgspec

from hermes.cli.home import json_option, say, say_json
from hermes.config import profiles
from hermes.config.environment import process_environ
from hermes.config.loader import inspect_config
from hermes.config.paths import HermesHome
from hermes.config.secrets import Redactor, Secrets
from hermes.control.commands.wording import count
from hermes.control.supervision.instance import running_gateway
from hermes.domain.errors import Conflict, NotFound, UsageError
from hermes.state.sqlite.carried import bring_sessions, carried_sessions

_MARK = "# Written by: hermes profile alias"


def _first() -> HermesHome:
    return HermesHome.first(process_environ())


@click.group("profile")
def command() -> None:
    """Separate installs: each profile has a home, a configuration and a gateway of its own."""


def _facts(name: str) -> dict[str, object]:
    home = profiles.existing_profile(_first(), name)
    loaded = inspect_config(home, {})
    gateway = running_gateway(home.root)
    links = _launchers()
    return {
        "name": name,
        "active": name == _active(),
        "home": str(home.root),
        "model": "" if loaded.errors else loaded.config.model.model,
        "agents": [] if loaded.errors else list(loaded.config.agents),
        "gateway": gateway.pid if gateway else None,
        "alias": next((str(path) for path in links if _leads_to(path, name)), ""),
        "problems": [str(problem) for problem in loaded.errors],
    }


def _active() -> str:
    """Return the profile that this command works on."""
    here = HermesHome.from_environ(process_environ())
    return here.root.name if here.root.parent.name == "profiles" else profiles.FIRST


@command.command("list")
@json_option
def list_command(as_json: bool) -> None:
    """List the profiles; `*` marks the one in use."""
    found = [_facts(name) for name in (profiles.FIRST, *profiles.profile_names(_first()))]
    if as_json:
        say_json({"profiles": found})
        return
    for each in found:
        runs = f"  gateway runs ({each['gateway']})" if each["gateway"] is not None else ""
        mark = "*" if each["active"] else " "
        say(f"{mark} {each['name']}  {each['model'] or 'no model'}  {each['home']}{runs}")


@command.command("show")
@click.argument("name", required=False)
@json_option
def show_command(name: str | None, as_json: bool) -> None:
    """Show a profile; without NAME the one in use."""
    found = _facts(name or _active())
    if as_json:
        say_json(found)
        return
    gateway = found["gateway"]
    say(f"Profile: {found['name']}{' (in use)' if found['active'] else ''}")
    say(f"Home: {found['home']}")
    say(f"Model: {found['model'] or 'not chosen'}")
    for agent in found["agents"] if isinstance(found["agents"], list) else ():
        say(f"Agent: {agent}")
    say(f"Gateway: {'not running' if gateway is None else f'runs as process {gateway}'}")
    say(f"Alias: {found['alias'] or 'none'}")
    for problem in found["problems"] if isinstance(found["problems"], list) else ():
        say(f"Trouble: {problem}")


@command.command("use")
@click.argument("name")
def use_command(name: str) -> None:
    """Make NAME the profile of every command without -p; `default` for the first install."""
    profiles.use(_first(), name)
    say(f"In use: {name}")


_with_env = click.option("--with-env", is_flag=True, help="Copy the secrets (.env), too.")


@command.command("create")
@click.argument("name")
@click.option("--clone", is_flag=True, help="Copy the profile in use.")
@click.option("--clone-from", metavar="NAME", help="Copy this profile.")
@_with_env
def create_command(name: str, clone: bool, clone_from: str | None, with_env: bool) -> None:
    """Make a profile: empty, or a copy without history, and without secrets unless asked."""
    if clone or clone_from:
        _clone(clone_from or _active(), name, with_env=with_env)
    elif with_env:
        raise UsageError("--with-env goes with --clone.")
    else:
        home = profiles.create(_first(), name)
        say(f"The profile {name} is there: {home.root}")
        say(f"Set it up: hermes -p {name} setup")


@command.command("clone")
@click.argument("source")
@click.argument("name")
@_with_env
def clone_command(source: str, name: str, with_env: bool) -> None:
    """Copy the profile SOURCE: configuration, SOUL.md, memories, skills, jobs, agents."""
    _clone(source, name, with_env=with_env)


def _clone(source: str, name: str, *, with_env: bool) -> None:
    first = _first()
    origin = profiles.existing_profile(first, source)
    home = profiles.clone(first, origin, name, with_env=with_env)
    say(f"The profile {name} is a copy of {source}: {home.root}")
    say(
        "It has the same bots: only one gateway can use them at a time."
        if with_env
        else f"Give it secrets of its own in {home.env_file}, or with: hermes -p {name} setup"
    )


@command.command("delete")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
def delete_command(name: str, yes: bool) -> None:
    """Delete a profile with everything in it, for good."""
    first = _first()
    profiles.check_name(name)
    home = profiles.existing_profile(first, name)
    holder = running_gateway(home.root)
    if holder is not None:
        raise Conflict(
            f"The gateway of `{name}` is running (process {holder.pid}).",
            hint=f"Stop it first: hermes -p {name} gateway stop",
        )
    if not yes and not click.confirm(f"Delete {home.root} for good?", err=True):
        raise click.Abort
    for link in [path for path in _launchers() if _leads_to(path, name)]:
        link.unlink()
    profiles.delete(first, name)
    say(f"The profile {name} is deleted.")


def _launchers() -> list[Path]:
    folder = _bin()
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _bin() -> Path:
    return Path(process_environ().get("HOME") or Path.home()) / ".local" / "bin"


def _leads_to(path: Path, profile: str) -> bool:
    try:
        return path.is_file() and f"{_MARK} {profile}\n" in path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return False


@command.command("alias")
@click.argument("name")
@click.option("--name", "launcher", metavar="WORD", help="What to type; otherwise NAME.")
@click.option("--remove", is_flag=True, help="Remove it.")
def alias_command(name: str, launcher: str | None, remove: bool) -> None:
    """Write a launcher to ~/.local/bin: NAME then means `hermes -p NAME`."""
    first = _first()
    profiles.existing_profile(first, name)
    word = launcher or name
    if launcher or name == profiles.FIRST:
        profiles.check_name(word)
    path = _bin() / word
    if remove:
        if not _leads_to(path, name):
            raise NotFound(f"{path} is no launcher of `{name}`.")
        path.unlink()
        say(f"{path} is removed.")
        return
    other = shutil.which(word, path=process_environ().get("PATH"))
    if (path.exists() or path.is_symlink() or other) and not _leads_to(path, name):
        raise Conflict(
            f"There is a program `{word}` already ({other or path}).", hint="Choose --name WORD."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    words = [f"HERMES_HOME={first.root}", sys.executable, "-m", "hermes.cli", "-p", name]
    path.write_text(f'#!/bin/sh\n{_MARK} {name}\nexec env {shlex.join(words)} "$@"\n', "utf-8")
    path.chmod(0o755)
    say(f"{path} means: hermes -p {name}")
    if str(path.parent) not in process_environ().get("PATH", "").split(os.pathsep):
        say(f"{path.parent} is not on your PATH yet.")


@command.command("export")
@click.argument("name")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="NAME.tar.gz otherwise.")
@click.option("--with-secrets", is_flag=True, help="With .env and keys in config.yaml.")
@click.option("--with-sessions", is_flag=True, help="With the conversations.")
def export_command(name: str, output: Path | None, with_secrets: bool, with_sessions: bool) -> None:
    """Write a profile to an archive: what it is, without secrets and conversations unless asked."""
    home = profiles.existing_profile(_first(), name)
    target = output or Path(f"{name}.tar.gz")
    secrets = None if with_secrets else profiles.known_secrets(home, process_environ())
    lines = asyncio.run(_sessions(home, secrets)) if with_sessions else None
    sessions = b"".join(lines) if lines is not None else None
    number = profiles.export_profile(home, target, secrets, sessions)
    say(f"{target} has {count(number, 'file')}{', secrets among them' if with_secrets else ''}.")
    if lines is not None:
        say(f"It has {count(len(lines), 'conversation')}.")


async def _sessions(home: HermesHome, secrets: Secrets | None) -> list[bytes]:
    redactor, lines = Redactor(secrets) if secrets is not None else None, []
    async for each in carried_sessions(home):
        data = msgspec.to_builtins(each)
        data = data if redactor is None else redactor.redact_value(data)
        lines.append(msgspec.json.encode(data) + b"\n")
    return lines


@command.command("import")
@click.argument("archive", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.argument("name", required=False)
@click.option("--name", "named", metavar="NAME", help="The same as NAME.")
def import_command(archive: Path, name: str | None, named: str | None) -> None:
    """Make the profile NAME of an archive; its file name gives the name otherwise."""
    named = (
        name or named or archive.name.removesuffix(".gz").removesuffix(".tar").removesuffix(".tgz")
    )
    home, files = profiles.import_profile(_first(), archive, named)
    if profiles.SESSIONS in files:
        carried = home.root / profiles.SESSIONS
        try:
            brought = asyncio.run(bring_sessions(home, carried))
        except BaseException:
            shutil.rmtree(home.root)
            raise
        carried.unlink()
        say(f"It brings {count(brought, 'conversation')}.")
    say(f"The profile {named} is there, with {count(len(files), 'file')}: {home.root}")
    for kind in ("hooks", "scripts", "cron"):
        if any(f"{kind}/" in file for file in files):
            say(f"It brings {kind}: look at {home.root / kind} before you start its gateway.")
