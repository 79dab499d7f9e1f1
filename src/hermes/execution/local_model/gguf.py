"""Reading the header of a GGUF file: enough to know what model it is.

A GGUF file begins with a magic number, counts, and key-value pairs. Keys about
the model come before those of the tokenizer, which are long, so reading stops
there. Everything is bounded: a hostile file costs a few reads and one error.
"""

import struct
from pathlib import Path
from typing import BinaryIO, Final

from msgspec import Struct

from hermes.domain.errors import NotFound, UsageError

__all__ = ["GgufHeader", "NotGguf", "read_header"]

Value = str | int | float | bool | None

_MAGIC: Final = b"GGUF"
_VERSIONS: Final = frozenset({2, 3})
_MAX_PAIRS: Final = 4096
_MAX_TEXT: Final = 1 << 20
_MAX_ITEMS: Final = 1 << 16
_STRING: Final = 8
_ARRAY: Final = 9
_SCALARS: Final = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_U32: Final = _SCALARS[4]
_U64: Final = _SCALARS[10]


class NotGguf(UsageError):
    """The file is not a model that can be loaded."""

    code = "not_gguf"


class GgufHeader(Struct, frozen=True, kw_only=True):
    """What the file says about its model."""

    name: str = ""
    architecture: str = ""
    context_length: int | None = None
    """Tokens the model was trained to read."""
    size_label: str = ""
    """`135M`, `7B` and so on."""


def read_header(path: Path) -> GgufHeader:
    """Read what model is in `path`; raise `NotGguf` when it is none."""
    try:
        with path.open("rb") as file:
            pairs = _pairs(file)
    except FileNotFoundError as error:
        raise NotFound(f"There is no file {path}.", hint="Check the path.") from error
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}.", hint="Check that it is a readable file."
        ) from error
    except (struct.error, ValueError) as error:
        raise NotGguf(
            f"{path} is not a GGUF model: {error}.",
            hint="Download a model file whose name ends in .gguf, and check that it is complete.",
        ) from error
    architecture = _text(pairs.get("general.architecture"))
    length = pairs.get(f"{architecture}.context_length")
    return GgufHeader(
        name=_text(pairs.get("general.name")),
        architecture=architecture,
        context_length=length if type(length) is int and 0 < length < 1 << 31 else None,
        size_label=_text(pairs.get("general.size_label")),
    )


def _pairs(file: BinaryIO) -> dict[str, Value]:
    if file.read(4) != _MAGIC:
        raise ValueError("it does not begin with the letters GGUF")
    version = _number(file, _U32)
    if version not in _VERSIONS:
        raise ValueError(f"version {version} of the format is not supported")
    _number(file, _U64)
    count = _number(file, _U64)
    if count > _MAX_PAIRS:
        raise ValueError("its header is damaged")
    pairs: dict[str, Value] = {}
    for _ in range(count):
        key = _string(file)
        if key.startswith("tokenizer."):
            break
        pairs[key] = _value(file, _number(file, _U32))
    return pairs


def _value(file: BinaryIO, kind: int) -> Value:
    if kind == _STRING:
        return _string(file)
    if kind == _ARRAY:
        _skip_array(file)
        return None
    scalar = _SCALARS.get(kind)
    if scalar is None:
        raise ValueError("its header is damaged")
    value: int | float | bool = scalar.unpack(_exactly(file, scalar.size))[0]
    return value


def _skip_array(file: BinaryIO) -> None:
    kind, count = _number(file, _U32), _number(file, _U64)
    if count > _MAX_ITEMS or kind == _ARRAY:
        raise ValueError("its header is damaged")
    for _ in range(count):
        _value(file, kind)


def _string(file: BinaryIO) -> str:
    length = _number(file, _U64)
    if length > _MAX_TEXT:
        raise ValueError("its header is damaged")
    return _exactly(file, length).decode("utf-8", "replace")


def _number(file: BinaryIO, form: struct.Struct) -> int:
    value: int = form.unpack(_exactly(file, form.size))[0]
    return value


def _exactly(file: BinaryIO, size: int) -> bytes:
    data = file.read(size)
    if len(data) != size:
        raise ValueError("it ends in the middle of its header")
    return data


def _text(value: Value) -> str:
    return value if isinstance(value, str) else ""
