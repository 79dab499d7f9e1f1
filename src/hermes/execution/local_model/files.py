"""Model files on this machine: where they are and what is known about them.

The embedded model lives in `models/` of the home. Any other GGUF file stays
where it is: `models/models.json` records its path under a name. What a file
says about itself is read from its header when it is registered.
"""

import re
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from hermes.config.atomic import editing, write_atomic
from hermes.config.paths import HermesHome
from hermes.domain.errors import ConfigError, Conflict, NotFound, UsageError
from hermes.execution.local_model.gguf import read_header

__all__ = [
    "EMBEDDED",
    "EMBEDDED_FILE",
    "PROVIDER",
    "LocalModel",
    "add_local",
    "embedded_file",
    "find_local",
    "list_local",
    "remove_local",
]

PROVIDER: Final = "embedded"
"""The provider name in the configuration for models that Hermes serves itself."""
EMBEDDED: Final = "smollm2-135m"
"""The name of the model that Hermes can fetch."""
EMBEDDED_FILE: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"
_EMBEDDED_CONTEXT: Final = 8192
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


class LocalModel(Struct, frozen=True, kw_only=True):
    """A model file that can be served."""

    name: str
    path: Path
    title: str = ""
    """What the file calls itself."""
    architecture: str = ""
    context_length: int | None = None
    """Tokens it was trained to read."""
    size_bytes: int = 0


class _Registry(Struct, frozen=True, kw_only=True):
    models: tuple[LocalModel, ...] = ()


def embedded_file(home: HermesHome) -> Path:
    """Return where the embedded model is kept."""
    return home.models_dir / EMBEDDED_FILE


def list_local(home: HermesHome) -> tuple[LocalModel, ...]:
    """Return the models that can be served: the embedded one, then the registered ones."""
    models = _read(home).models
    file = embedded_file(home)
    try:
        size = file.stat().st_size
    except OSError:
        return models
    embedded = LocalModel(
        name=EMBEDDED,
        path=file,
        title="SmolLM2 135M Instruct",
        architecture="llama",
        context_length=_EMBEDDED_CONTEXT,
        size_bytes=size,
    )
    return (embedded, *models)


def find_local(home: HermesHome, name: str) -> LocalModel:
    """Return the model called `name`, whose file is there; explain if it is not."""
    for model in list_local(home):
        if model.name == name:
            if model.path.is_file():
                return model
            raise NotFound(
                f"The file of the model `{name}` is gone: {model.path}.",
                hint=f"Put it back, or forget it with: hermes model remove-local {name}",
            )
    if name == EMBEDDED:
        raise NotFound(
            "The embedded model is not on this machine yet.",
            hint="Fetch it (98 MB) with: hermes model fetch-embedded",
        )
    known = ", ".join(model.name for model in list_local(home)) or "none"
    raise NotFound(
        f"There is no local model called `{name}` (known: {known}).",
        hint="Register a GGUF file with: hermes model add-local PATH",
    )


def add_local(home: HermesHome, path: Path, name: str = "") -> LocalModel:
    """Register a GGUF file under a name; nothing is copied."""
    file = path.expanduser().absolute()
    header = read_header(file)
    chosen = name or _name_of(file)
    if not _NAME.fullmatch(chosen) or chosen == EMBEDDED:
        raise UsageError(
            f"`{chosen}` cannot be the name of a local model.",
            hint="Use small letters, digits, dots and dashes: --name my-model",
        )
    model = LocalModel(
        name=chosen,
        path=file,
        title=header.name or header.size_label,
        architecture=header.architecture,
        context_length=header.context_length,
        size_bytes=file.stat().st_size,
    )
    with editing(home):
        models = _read(home).models
        taken = next((m for m in models if m.name == chosen and m.path != file), None)
        if taken is not None:
            raise Conflict(
                f"The name `{chosen}` already stands for {taken.path}.",
                hint=f"Give another name with --name, or: hermes model remove-local {chosen}",
            )
        kept = tuple(m for m in models if m.name != chosen)
        _write(home, _Registry(models=(*kept, model)))
    return model


def remove_local(home: HermesHome, name: str) -> LocalModel:
    """Forget a registered model; its file stays."""
    with editing(home):
        models = _read(home).models
        found = next((model for model in models if model.name == name), None)
        if found is None:
            raise NotFound(
                f"No file is registered under the name `{name}`.",
                hint="See what is registered with: hermes model list",
            )
        _write(home, _Registry(models=tuple(m for m in models if m.name != name)))
    return found


def _name_of(file: Path) -> str:
    return re.sub(r"[^a-z0-9._-]+", "-", file.stem.lower()).strip("-._")[:64] or "model"


def _registry_file(home: HermesHome) -> Path:
    return home.models_dir / "models.json"


def _read(home: HermesHome) -> _Registry:
    file = _registry_file(home)
    try:
        return msgspec.json.decode(file.read_bytes(), type=_Registry, dec_hook=_decode_path)
    except (FileNotFoundError, NotADirectoryError):
        return _Registry()
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(
            f"{file} cannot be read: {error}.",
            hint="Move it away and register the models again with: hermes model add-local PATH",
        ) from error


def _write(home: HermesHome, registry: _Registry) -> None:
    home.subdirectory(home.models_dir)
    data = msgspec.json.format(msgspec.json.encode(registry, enc_hook=str), indent=2)
    write_atomic(_registry_file(home), data.decode() + "\n")


def _decode_path(kind: type, value: object) -> object:
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise NotImplementedError(kind)
