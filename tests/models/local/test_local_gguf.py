"""Reading GGUF headers: right on real ones, harmless on anything else."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fakes.gguf import gguf_bytes
from hermes.domain.errors import NotFound, UsageError
from hermes.models.local.files import NotGguf, read_header

_META: dict[str, str | int | list[str]] = {
    "general.architecture": "llama",
    "general.name": "Tiny Test",
    "general.tags": ["a", "b"],
    "general.size_label": "135M",
    "llama.context_length": 8192,
    "tokenizer.ggml.tokens": ["<s>", "x"] * 50,
}


def test_the_header_tells_name_and_context(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(gguf_bytes(_META))
    header = read_header(file, "m")
    assert header.title == "Tiny Test"
    assert header.context_length == 8192
    assert (header.name, header.size_bytes) == ("m", file.stat().st_size)


def test_a_header_without_a_tokenizer_is_read_to_its_end(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(gguf_bytes({"general.architecture": "bert", "bert.context_length": 512}))
    header = read_header(file, "m")
    assert (header.title, header.context_length) == ("bert", 512)


@pytest.mark.parametrize("content", [b"", b"GGUF", b"PK\x03\x04 a wheel", b"GGML" + b"\0" * 64])
def test_other_files_are_refused_with_a_reason(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(content)
    with pytest.raises(NotGguf, match="is not a GGUF model") as caught:
        read_header(file, "m")
    assert caught.value.hint


def test_an_unknown_version_is_named(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(gguf_bytes(_META, version=9))
    with pytest.raises(NotGguf, match="version 9"):
        read_header(file, "m")


def test_a_missing_file_and_a_directory_are_explained(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        read_header(tmp_path / "none.gguf", "m")
    with pytest.raises(UsageError, match="cannot be read"):
        read_header(tmp_path, "m")


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.one_of(
        st.binary(max_size=300),
        st.binary(max_size=300).map(lambda tail: b"GGUF\x03\0\0\0" + tail),
        st.tuples(st.integers(0, len(gguf_bytes(_META))), st.binary(max_size=16)).map(
            lambda cut: gguf_bytes(_META)[: cut[0]] + cut[1] + gguf_bytes(_META)[cut[0] :]
        ),
        st.integers(0, len(gguf_bytes(_META))).map(lambda size: gguf_bytes(_META)[:size]),
    )
)
def test_arbitrary_bytes_give_a_header_or_an_explanation(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(content)
    with contextlib.suppress(NotGguf):
        read_header(file, "m")
