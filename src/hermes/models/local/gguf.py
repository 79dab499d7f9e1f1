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

_MAX_PAIRS: Final = 4096
_MAX_TEXT: Final = 1 << 20
_MAX_ITEMS: Final = 1 << 16
_STRING: Final = 8
_ARRAY: Final = 9
_SCALARS: Final = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))


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
    except ValueError as error:
        raise NotGguf(
            f"{path} is not a GGUF model: {error}.",
            hint="Download a model file whose name ends in .gguf, and check that it is complete.",
        ) from error
    texts = {key: value for key, value in pairs.items() if isinstance(value, str)}
    architecture = texts.get("general.architecture", "")
    length = pairs.get(f"{architecture}.context_length")
    return GgufHeader(
        name=texts.get("general.name", ""),
        architecture=architecture,
        context_length=length if type(length) is int and 0 < length < 1 << 31 else None,
        size_label=texts.get("general.size_label", ""),
    )


def _pairs(file: BinaryIO) -> dict[str, object]:
    if file.read(4) != b"GGUF":
        raise ValueError("it does not begin with the letters GGUF")
    version, _, count = _unpack(file, "<IQQ")
    if version not in {2, 3}:
        raise ValueError(f"version {version} of the format is not supported")
    pairs: dict[str, object] = {}
    for _ in range(_bounded(count, _MAX_PAIRS)):
        key = _string(file)
        if key.startswith("tokenizer."):
            break
        pairs[key] = _value(file, *_unpack(file, "<I"))
    return pairs


def _value(file: BinaryIO, kind: int) -> object:
    if kind == _STRING:
        return _string(file)
    if kind == _ARRAY:
        items, count = _unpack(file, "<IQ")
        for _ in range(_bounded(count, _MAX_ITEMS)):
            _value(file, items if items != _ARRAY else -1)
        return None
    if kind not in _SCALARS:
        raise ValueError("its header is damaged")
    return _unpack(file, f"<{_SCALARS[kind]}")[0]


def _string(file: BinaryIO) -> str:
    (length,) = _unpack(file, "<Q")
    return _exactly(file, _bounded(length, _MAX_TEXT)).decode("utf-8", "replace")


def _bounded(number: int, most: int) -> int:
    if number > most:
        raise ValueError("its header is damaged")
    return number


def _unpack(file: BinaryIO, form: str) -> tuple[int, ...]:
    return struct.unpack(form, _exactly(file, struct.calcsize(form)))


def _exactly(file: BinaryIO, size: int) -> bytes:
    data = file.read(size)
    if len(data) != size:
        raise ValueError("it ends in the middle of its header")
    return data
