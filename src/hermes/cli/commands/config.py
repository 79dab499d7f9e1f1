"""`hermes config`: show, change, check and migrate the configuration.

`path`, `env-path`, `edit`, `check` and `set` work however broken the file is.
No command ever prints a secret.
"""

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import click
import msgspec
from msgspec import Struct

from hermes.app.agents import model_problems
from hermes.app.doubts import config_doubts
from hermes.app.settings import WHAT_LOCAL_MEANS
from hermes.cli.home import app_options, json_option, loaded_config, say_json, this_home
from hermes.config.check import describe, fields_by_name
from hermes.config.document import Path, format_key, parse_key
from hermes.config.edit import is_env_name, migrate_files, set_value, unset_value
from hermes.config.environment import process_environ
from hermes.config.loader import LoadedConfig, inspect_config, read_env
from hermes.config.meaning import default_of, meaning_of, parse_value, type_of
from hermes.config.normalize import proper, variables_for
from hermes.config.paths import HermesHome
from hermes.domain.errors import ConfigError, NotFound, UsageError
from hermes.domain.platforms import platforms
from hermes.domain.settings import CONFIG_VERSION
from hermes.domain.settings.doors import Platform
from hermes.domain.settings.section import is_secret_name, masked


def effective(loaded: LoadedConfig, path: Path) -> Any:
    value: Any = loaded.config
    for depth, name in enumerate(path):
        found, value = _step(value, name)
        if not found:
            missing = format_key(path[: depth + 1])
            raise NotFound(
                f"There is no configuration key `{missing}`.",
                hint="List all keys with: hermes config show --all",
            )
    return value


def meant(loaded: LoadedConfig, key: str) -> Path:
    """Return the path of a key; its older names and the older blocks of platforms count too."""
    path = proper(parse_key(key))
    if path[0] in {*platforms(), *loaded.config.platforms} and len(path) > 1:
        inside = () if path[1] in Platform.__struct_fields__ else ("extra",)
        return ("platforms", path[0], *inside, *path[1:])
    return path


def leaves(loaded: LoadedConfig, *, everything: bool) -> Iterator[tuple[Path, Any]]:
    """Yield each key with its value; only what differs from the default if not `everything`."""
    for path, value in _walk(loaded.config, ()):
        if everything or value != default_of(path):
            yield path, value


def plain(loaded: LoadedConfig, path: Path, value: Any) -> Any:
    """Return a value as JSON-able data with everything secret masked."""
    data = masked(path[-1] if path else "", msgspec.to_builtins(value))
    return _whole(loaded.redactor().redact_value(data))


def shown(data: Any) -> str:
    return data if isinstance(data, str) and data else json.dumps(data, ensure_ascii=False)


def _whole(data: Any) -> Any:
    """Write 60.0 as 60: that is how people write it in the file."""
    if isinstance(data, dict):
        return {key: _whole(item) for key, item in data.items()}
    if isinstance(data, list):
        return [_whole(item) for item in data]
    return int(data) if isinstance(data, float) and data.is_integer() else data


def _step(value: Any, name: str) -> tuple[bool, Any]:
    if isinstance(value, Struct):
        info = fields_by_name(type(value)).get(name)
        return (False, None) if info is None else (True, getattr(value, info.name))
    if isinstance(value, dict):
        return name in value, value.get(name)
    if isinstance(value, tuple | list) and name.isdecimal() and int(name) < len(value):
        return True, value[int(name)]
    return False, None


def _walk(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, Struct):
        for name, info in fields_by_name(type(value)).items():
            yield from _walk(getattr(value, info.name), (*path, name))
    elif isinstance(value, dict) and value:
        for name, item in value.items():
            yield from _walk(item, (*path, str(name)))
    else:
        yield path, value


@click.group("config")
def command() -> None:
    """Show, change, check and migrate the configuration."""


@command.command("path")
def path_command() -> None:
    """Print where the configuration is."""
    click.echo(this_home().config_file)


@command.command("env-path")
def env_path_command() -> None:
    """Print where the secrets are."""
    click.echo(this_home().env_file)


@command.command("show")
@click.option("--all", "everything", is_flag=True, help="Also keys at their default.")
@json_option
def show_command(everything: bool, as_json: bool) -> None:
    """Print the effective configuration and where each value comes from."""
    loaded = loaded_config()
    if as_json and everything:
        say_json(plain(loaded, (), loaded.config))
        return
    found = {
        format_key(key): plain(loaded, key, value)
        for key, value in leaves(loaded, everything=everything)
    }
    if as_json:
        say_json(found)
        return
    for key, value in found.items():
        click.echo(f"{key}: {shown(value)}  # {loaded.origin(key)}")
    if not found:
        click.echo("Everything is at its default. List all keys with: hermes config show --all")


@command.command("get")
@click.argument("key")
@click.option("--json", "as_json", is_flag=True, help="Print the value as JSON.")
def get_command(key: str, as_json: bool) -> None:
    """Print the effective value of KEY; secrets only as *** when they are set."""
    loaded = loaded_config()
    if is_env_name(key):
        value = loaded.variable(key)
        if value is None:
            raise NotFound(f"{key} is not set.", hint=f"Set it with: hermes config set {key} VALUE")
        hidden = is_secret_name(key) or key in loaded.secrets
        data = "***" if hidden else loaded.redactor().redact(value)
    else:
        path = meant(loaded, key)
        data = plain(loaded, path, effective(loaded, path))
    click.echo(json.dumps(data, ensure_ascii=False) if as_json else shown(data))


@command.command("set", context_settings={"ignore_unknown_options": True})
@click.argument("key")
@click.argument("value")
@click.option("--force", is_flag=True, help="Write a key that Hermes does not know.")
def set_command(key: str, value: str, force: bool) -> None:
    """Set KEY to VALUE (YAML or JSON); NAMES_IN_CAPITALS go to .env."""
    home = this_home()
    meant = value if is_env_name(key) else parse_value(parse_key(key), value)
    set_value(home, key, meant, force=force, environ=process_environ())
    file = home.env_file if is_env_name(key) else home.config_file
    click.echo(f"{key} is set in {file}")
    _note_override(home, key)
    _note_meaning(home, key)


@command.command("unset")
@click.argument("key")
def unset_command(key: str) -> None:
    """Remove KEY, so that its default applies."""
    home = this_home()
    if not unset_value(home, key, environ=process_environ()):
        raise NotFound(f"{key} is not set in {home.root}.", hint="See: hermes config show")
    click.echo(f"{key} is removed")
    _note_override(home, key)


@command.command("edit")
def edit_command() -> None:
    """Open the configuration in $VISUAL or $EDITOR, then check it."""
    home = this_home().ensure()
    home.config_file.touch(mode=0o600)
    try:
        click.edit(filename=str(home.config_file))
    except click.ClickException as error:
        raise UsageError(
            f"The editor failed or is not there ({error.message.rstrip('.')}).",
            hint="The file is as the editor left it. Set EDITOR to use another editor.",
        ) from error
    _report(quiet=True)


@command.command("check")
def check_command() -> None:
    """List everything that is wrong or doubtful; fail if anything is wrong."""
    _report(quiet=False)


@command.command("migrate")
def migrate_command() -> None:
    """Rewrite an older configuration in the current version; a backup is kept."""
    done = migrate_files(this_home(), datetime.now().astimezone())
    if done.backup is None:
        click.echo(f"Nothing to do: the configuration is at version {CONFIG_VERSION}.")
        return
    for change in done.changes:
        click.echo(f"changed {change}")
    click.echo(f"From version {done.version} to {CONFIG_VERSION}; the old file: {done.backup}")


@command.command("explain")
@click.argument("key")
def explain_command(key: str) -> None:
    """Print what KEY means, its value, where that comes from, and the default."""
    loaded = loaded_config()
    path = meant(loaded, key)
    value, kind = effective(loaded, path), type_of(path)
    default = plain(loaded, path, default_of(path))
    click.echo(key)
    if meaning := meaning_of(path):
        click.echo(f"  {meaning}")
    rows = {
        "value": shown(plain(loaded, path, value)),
        "from": loaded.origin(format_key(path)),
        "default": shown(default),
        "accepts": "any value" if kind is None else describe(kind),
        "variable": ", ".join(name for name, target in variables_for() if target == path),
    }
    for title, text in rows.items():
        if text:
            click.echo(f"  {title:<8} {text}")


def _report(*, quiet: bool) -> None:
    found = inspect_config(this_home(), process_environ())
    errors = found.errors or unusable(found)
    for problem in errors:
        click.echo(f"error: {problem}", err=True)
    agents = model_problems(found, this_home()) if not errors else {}
    wrong = (f"the agent {agent} cannot answer: {why}" for agent, why in agents.items())
    doubts = () if errors else config_doubts(found, this_home())
    for warning in (*found.warnings, *wrong, *doubts, *found.unused, *idle_keys(found)):
        click.echo(f"warning: {warning}", err=True)
    if errors:
        click.get_current_context().exit(ConfigError.exit_code)
    if not quiet or found.warnings:
        click.echo(f"{this_home().config_file} is valid.")


def idle_keys(loaded: LoadedConfig) -> list[str]:
    from hermes.app.platforms import idle_settings  # noqa: PLC0415 - see below

    return idle_settings(loaded)


def unusable(loaded: LoadedConfig) -> tuple[str, ...]:
    """Say why a gateway could not start with a configuration that loads."""
    from hermes.app.doors import check_enabled  # noqa: PLC0415 - only here are doors needed

    try:
        check_enabled(loaded, app_options(platform="gateway"))
    except ConfigError as error:
        return (f"{error.message} {error.hint}".rstrip(),)
    return ()


def _note_meaning(home: HermesHome, key: str) -> None:
    """Say what was just chosen, where the name of a backend does not."""
    path = dict(variables_for()).get(key) if is_env_name(key) else proper(parse_key(key))
    found = inspect_config(home, process_environ())
    named = path in {("terminal", "backend"), ("terminal",)}
    if named and not found.errors and found.config.terminal.backend == "local":
        click.echo(WHAT_LOCAL_MEANS)


def _note_override(home: HermesHome, key: str) -> None:
    """Say so when something else decides the value that was just changed."""
    environ = process_environ()
    if is_env_name(key):
        if key in environ and environ[key] != read_env(home).values.get(key):
            click.echo(f"note: the environment variable {key} wins over .env", err=True)
        return
    origin = inspect_config(home, environ).origin(key)
    if not origin.startswith(("config.yaml", "default")):
        click.echo(f"note: {origin} wins over config.yaml for {key}", err=True)
