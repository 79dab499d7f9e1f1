"""Model files on this machine: their places, their properties and how they are prompted.

The embedded model lives in `models/` of the home. Any other GGUF file stays
where it is: `models/models.json` records its path under a name. Its properties
are read from its header when it is registered.

A very small model reads few tokens a second and follows few instructions, so
it has an identity of one line, no project files, and two tools whose calls are
made valid by constrained decoding (`embedded`). Larger models are
treated like any other.
"""

import re
import struct
from pathlib import Path
from typing import Final

from msgspec import Struct

from hermes.config.atomic import editing, read_json, write_json
from hermes.config.paths import HermesHome
from hermes.domain.errors import Conflict, NotFound, UsageError
from hermes.domain.ports.model import ModelInfo
from hermes.domain.turn import ASKABLE, JSON_OBJECT, JSON_SCHEMA

PROVIDER: Final = "embedded"
"""The provider name in the configuration for models that Hermes serves itself."""
EMBEDDED: Final = "smollm2-135m"
"""The name of the model that Hermes can fetch."""
EMBEDDED_FILE: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"
TOY_NOTICE: Final = (
    "This is SmolLM2-135M, a toy-sized model for trying things out: it runs on this computer"
    " without a network, is often wrong, and can do little more than chat, list a folder or"
    " read a file. Choose a capable model with `hermes model`."
)
"""What the banner and the documentation say about the embedded model."""
TINY_PROMPT: Final = "You are Hermes, a small assistant that runs on this computer."
_HEADER_BYTES: Final = 1 << 18
_U32: Final = 4
_STRING: Final = 8
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_TINY_BYTES: Final = 500_000_000
"""Files below this hold models that cannot be trusted with free tool calls."""

_NOT_LOCAL: Final = frozenset({"repetition_penalty", "prediction"})
"""The engine has no such fields, or they are ours to set."""


class NotGguf(UsageError):
    code = "not_gguf"


class LocalModel(Struct, frozen=True, kw_only=True):
    name: str
    path: Path
    title: str = ""
    """What the file calls itself."""
    context_length: int | None = None
    """Tokens it was trained to read."""
    size_bytes: int = 0


def info_of(model: LocalModel) -> ModelInfo:
    """Return how `model` is prompted, within the context it was trained for."""
    tiny = model.size_bytes < _TINY_BYTES
    window = 4096 if tiny else 16_384
    return ModelInfo(
        provider=PROVIDER,
        model=model.name,
        context_window=min(window, model.context_length or window),
        max_output=400 if tiny else None,  # a small model that is lost does not stop
        own_prompt=TINY_PROMPT if tiny else None,
        own_tools=("read_file", "search_files") if tiny else None,
        can_title=not tiny,
        takes=ASKABLE - _NOT_LOCAL - ({JSON_OBJECT, JSON_SCHEMA} if tiny else set()),
    )


def embedded_file(home: HermesHome) -> Path:
    return home.models_dir / EMBEDDED_FILE


def list_local(home: HermesHome) -> tuple[LocalModel, ...]:
    """Return the models that can be served: the embedded one, then the registered ones."""
    models = tuple(_read(home).values())
    file = embedded_file(home)
    if not file.is_file():
        return models
    title, size = "SmolLM2 135M Instruct", file.stat().st_size
    embedded = LocalModel(
        name=EMBEDDED, path=file, title=title, context_length=8192, size_bytes=size
    )
    return (embedded, *models)


def find_local(home: HermesHome, name: str) -> LocalModel:
    models = {model.name: model for model in list_local(home)}
    if model := models.get(name):
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
    raise NotFound(
        f"There is no local model called `{name}` (known: {', '.join(models) or 'none'}).",
        hint="Register a GGUF file with: hermes model add-local PATH",
    )


def add_local(home: HermesHome, path: Path, name: str = "") -> LocalModel:
    """Register a GGUF file under a name; nothing is copied."""
    file = path.expanduser().absolute()
    usual = re.sub(r"[^a-z0-9._-]+", "-", file.stem.lower()).strip("-._")[:64] or "model"
    chosen = name or usual
    model = read_header(file, chosen)
    if not _NAME.fullmatch(chosen) or chosen == EMBEDDED:
        raise UsageError(
            f"`{chosen}` cannot be the name of a local model.",
            hint="Use small letters, digits, dots and dashes: --name my-model",
        )
    with editing(home):
        models = _read(home)
        taken = models.get(chosen)
        if taken is not None and taken.path != file:
            raise Conflict(
                f"The name `{chosen}` already stands for {taken.path}.",
                hint=f"Give another name with --name, or: hermes model remove-local {chosen}",
            )
        _write(home, models | {chosen: model})
    return model


def remove_local(home: HermesHome, name: str) -> LocalModel:
    with editing(home):
        models = _read(home)
        found = models.pop(name, None)
        if found is None:
            raise NotFound(
                f"No file is registered under the name `{name}`.",
                hint="See what is registered with: hermes model list",
            )
        _write(home, models)
    return found


def read_header(path: Path, name: str) -> LocalModel:
    """Read the header of the model at `path`, to be called `name`; `NotGguf` if it has none.

    The pairs about the model come before the long ones of the tokenizer, so its beginning is
    enough, and a hostile file costs no more than that.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_HEADER_BYTES)
    except FileNotFoundError as error:
        raise NotFound(f"There is no file {path}.", hint="Check the path.") from error
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}.", hint="Check that it is a readable file."
        ) from error
    wrong = "" if data.startswith(b"GGUF") else "it does not begin with the letters GGUF"
    version = int.from_bytes(data[4:8], "little")
    if not wrong and version not in {2, 3}:
        wrong = f"version {version} of the format is not supported"
    if wrong:
        raise NotGguf(
            f"{path} is not a GGUF model: {wrong}.",
            hint="Download a model file whose name ends in .gguf, and check that it is complete.",
        )
    architecture = _text(data, "general.architecture")
    length = int.from_bytes(_after(data, f"{architecture}.context_length", _U32)[:4], "little")
    return LocalModel(
        name=name,
        path=path,
        title=_text(data, "general.name") or _text(data, "general.size_label") or architecture,
        context_length=length if 0 < length < 1 << 31 else None,
        size_bytes=path.stat().st_size,
    )


def _after(data: bytes, key: str, kind: int) -> bytes:
    """Return what follows a key whose value is of that kind; nothing if it is not there."""
    pair = struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", kind)
    return data.partition(pair)[2]


def _text(data: bytes, key: str) -> str:
    found = _after(data, key, _STRING)
    return found[8 : 8 + int.from_bytes(found[:8], "little")].decode("utf-8", "replace")


class _Registry(Struct, frozen=True):
    models: tuple[LocalModel, ...] = ()


def _read(home: HermesHome) -> dict[str, LocalModel]:
    registry = read_json(home.models_dir / "models.json", _Registry)
    return {model.name: model for model in registry.models}


def _write(home: HermesHome, models: dict[str, LocalModel]) -> None:
    registry = _Registry(tuple(models.values()))
    write_json(home.subdirectory(home.models_dir) / "models.json", registry)
