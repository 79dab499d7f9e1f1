"""Loading the configuration: file, environment and overlay become one value.

Each source is read once, brought to the current version and form, and laid
over the one before: defaults, `config.yaml`, `.env` and environment variables,
the machine's overlay. Nothing is written. Errors are collected and raised
together; everything doubtful is a warning.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path as FilePath
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from hermes.config.check import Checker, known_keys
from hermes.config.document import (
    ConfigProblem,
    Document,
    InvalidConfig,
    Mark,
    Path,
    format_key,
    parse_key,
    read_document,
)
from hermes.config.dotenv import EnvFile, parse_env
from hermes.config.migrations import migrate_data, version_of
from hermes.config.normalize import assign, merge_over, normalize, overrides_in
from hermes.config.paths import MANAGED_CONFIG, HermesHome
from hermes.config.secrets import Redactor, Secrets, secrets_in_config, secrets_in_variables
from hermes.domain.settings import CONFIG_VERSION, Settings
from hermes.domain.settings.section import is_secret_name

VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")

AGENTS = "agents"
"""What is below it is expanded for each agent, with its own variables."""


class LoadedConfig(Struct, frozen=True, kw_only=True):
    config: Settings
    """The defaults stand for values that are wrong."""
    errors: tuple[ConfigProblem, ...] = ()
    warnings: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    """Keys that the files set and that have no effect in this version, with what to use instead."""
    origins: Mapping[str, str]
    """Dotted key -> where its value came from; what is absent is a default."""
    secrets: Secrets
    variables: Mapping[str, str]
    """`.env` and the environment together; the environment wins."""
    templates: Mapping[str, Any] = {}
    """Top-level keys whose values refer to variables, as written: agents have their own."""

    def __repr__(self) -> str:
        return f"LoadedConfig({self.config!r}, warnings={len(self.warnings)}, {self.secrets!r})"

    def origin(self, key: str) -> str:
        """Return where the value of a key came from: a file and line, or `default`."""
        path = parse_key(key)
        for length in range(len(path), 0, -1):
            found = self.origins.get(format_key(path[:length]))
            if found is not None and (length == len(path) or self._inside_leaf(path[:length])):
                return found
        return "default"

    def variable(self, name: str) -> str | None:
        """Return a setting from `.env` or the environment that is not in the schema."""
        return self.variables.get(name) or None

    def redactor(self) -> Redactor:
        return Redactor(self.secrets)

    def _inside_leaf(self, path: Path) -> bool:
        # A list or free mapping has one origin for everything in it.
        value: Any = self.config
        for name in path:
            value = getattr(value, name, None) if isinstance(value, Struct) else None
        return isinstance(value, tuple | dict)


def load_config(
    home: HermesHome, environ: Mapping[str, str], *, managed: FilePath = MANAGED_CONFIG
) -> LoadedConfig:
    loaded = inspect_config(home, environ, managed=managed)
    if loaded.errors:
        raise InvalidConfig(loaded.errors)
    return loaded


def inspect_config(
    home: HermesHome, environ: Mapping[str, str], *, managed: FilePath = MANAGED_CONFIG
) -> LoadedConfig:
    """Load the configuration of `home`, also if it has errors."""
    env_file = EnvFile(values={}, lines={}, warnings=())
    try:
        env_file = read_env(home)
        document = read_document(home.config_file, "config.yaml")
        overlay = read_document(managed, str(managed))
    except InvalidConfig as error:
        return LoadedConfig(
            config=Settings(),
            errors=error.problems,
            origins={},
            secrets=secrets_in_variables(env_file.values, environ),
            variables={},
        )
    prepare(document)
    prepare(overlay)
    return _inspect(document, overlay, env_file, environ)


def read_env(home: HermesHome) -> EnvFile:
    return parse_env(read_env_text(home))


def with_private_files(loaded: LoadedConfig, home: HermesHome) -> LoadedConfig:
    """See to it that only their owner can read files with secrets; a warning says it was not so."""
    files = [home.env_file]
    with suppress(OSError, UnicodeDecodeError):
        text = home.config_file.read_text("utf-8")
        if any(value in text for _, value in loaded.secrets.items() if value):
            files.append(home.config_file)
    warnings = tuple(filter(None, map(_made_private, files)))
    return replace(loaded, warnings=(*loaded.warnings, *warnings)) if warnings else loaded


def _made_private(path: FilePath) -> str:
    try:
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
            return f"{path.name}: other users could read it; now only you can"
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError:
        return f"{path.name}: other users can read it (chmod 600 {path})"
    return ""


def read_env_text(home: HermesHome) -> str:
    """Return the text of `.env`, where the secrets of `home` are; empty if there is none."""
    try:
        return home.env_file.read_bytes().decode("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except UnicodeDecodeError as error:
        problem = ConfigProblem(where=".env", key="", text=f"is not UTF-8 at byte {error.start}")
        raise InvalidConfig((problem,), hint="Save the file in the encoding UTF-8.") from error
    except OSError as error:
        problem = ConfigProblem(where=".env", key="", text=f"cannot be read: {error.strerror}")
        raise InvalidConfig((problem,), hint="Check the file's permissions.") from error


def prepare(document: Document) -> None:
    """Bring a document to the current version and every value to its place."""
    name, version = document.name, version_of(document.data)
    if version > CONFIG_VERSION:
        document.warnings.append(
            f"{name}: version {version} is newer than this Hermes understands"
            f" ({CONFIG_VERSION}); it is read as far as possible"
        )
    migrated = migrate_data(document.data)
    if migrated is not document.data and version:
        document.warnings.append(
            f"{name}: written for version {version}; run `hermes config migrate` to update it"
        )
    document.data = dict(migrated)
    normalize(document)


def expand(document: Document, variables: Mapping[str, str], warnings: list[str]) -> dict[str, Any]:
    data = {key: item for key, item in document.data.items() if key != AGENTS}
    expanded = _expanded(data, (), variables, document, warnings)
    assert isinstance(expanded, dict)
    return expanded | {key: document.data[key] for key in document.data if key == AGENTS}


def _inspect(
    document: Document, overlay: Document, env_file: EnvFile, environ: Mapping[str, str]
) -> LoadedConfig:
    variables = {**env_file.values, **environ}
    warnings = [*document.warnings, *overlay.warnings, *env_file.warnings]
    for name, path, value in overrides_in(variables):
        origin = f"env {name}" if name in environ else f".env:{env_file.lines[name]} {name}"
        # A secret stays a reference until it is expanded: agents look it up for themselves.
        given = f"${{{name}}}" if is_secret_name(path[-1]) else value
        assign(document, path, given, Mark(origin, variables[name]))
    merge_over(document, overlay)
    written = document.data
    document.data = expand(document, variables, warnings)
    checker = Checker(document)
    config = checker.config()
    warnings += map(str, checker.warnings)
    named = secrets_in_variables(env_file.values, environ)
    secrets = named.merged(secrets_in_config(document.data))
    return LoadedConfig(
        config=config,
        errors=_redacted(checker.errors, secrets),
        warnings=tuple(warnings),
        unused=(*map(str, checker.unused), *_idle_variables(variables)),
        origins={format_key(path): mark.origin for path, mark in document.marks.items() if path},
        secrets=secrets,
        variables=variables,
        # Also what this home has no value for: another agent may have its own.
        templates={key: each for key, each in written.items() if "${" in str(each)},
    )


def _idle_variables(variables: Mapping[str, str]) -> list[str]:
    named = ((name, known_keys().get((name,))) for name in sorted(variables) if variables[name])
    return [f"{name} has no effect here: {reason}" for name, reason in named if reason]


def _redacted(problems: list[ConfigProblem], secrets: Secrets) -> tuple[ConfigProblem, ...]:
    """Take out secrets that stand, by expansion or mistake, where something else belongs."""
    redactor = Redactor(secrets)
    return tuple(
        ConfigProblem(where=problem.where, key=problem.key, text=redactor.redact(problem.text))
        for problem in problems
    )


def _expanded(
    value: Any, path: Path, variables: Mapping[str, str], document: Document, warnings: list[str]
) -> Any:
    """Replace `${NAME}` in all text below `value`."""
    if isinstance(value, dict):
        return {
            key: _expanded(item, (*path, key), variables, document, warnings)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [
            _expanded(item, (*path, str(at)), variables, document, warnings)
            for at, item in enumerate(value)
        ]
    if not isinstance(value, str) or "${" not in value:
        return value

    def replace(match: re.Match[str]) -> str:
        found = variables.get(match[1]) or match[2]
        if found is None:
            warnings.append(
                f"{document.origin(path)}: {format_key(path)} refers to {match[1]},"
                " which is not set"
            )
            # A text that is no key would go out as one.
            return "" if is_secret_name(path[-1]) else match[0]
        return found

    return VARIABLE.sub(replace, value)
