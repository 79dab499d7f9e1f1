"""The registry of model files."""

from pathlib import Path

import pytest

from fakes.gguf import gguf_bytes
from hermes.config.paths import HermesHome
from hermes.domain.errors import Conflict, NotFound, StoreError, UsageError
from hermes.models.local.files import (
    EMBEDDED,
    TINY_PROMPT,
    LocalModel,
    add_local,
    embedded_file,
    find_local,
    info_of,
    list_local,
    remove_local,
)


@pytest.fixture
def home(tmp_path: Path) -> HermesHome:
    return HermesHome(root=tmp_path / "home")


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    file = tmp_path / "My Model.Q4.gguf"
    file.write_bytes(
        gguf_bytes(
            {"general.architecture": "llama", "general.name": "Mine", "llama.context_length": 2048}
        )
    )
    return file


def test_a_registered_file_is_found_by_its_name_and_not_copied(
    home: HermesHome, gguf: Path
) -> None:
    added = add_local(home, gguf)
    assert added.name == "my-model.q4"
    assert find_local(home, "my-model.q4") == added
    assert (added.path, added.title, added.context_length) == (gguf, "Mine", 2048)
    assert [file.name for file in home.models_dir.iterdir()] == ["models.json"]


def test_registering_twice_is_the_same_as_once(home: HermesHome, gguf: Path) -> None:
    add_local(home, gguf)
    add_local(home, gguf)
    assert len(list_local(home)) == 1


def test_a_name_stands_for_one_file(home: HermesHome, gguf: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    other.write_bytes(gguf.read_bytes())
    add_local(home, gguf, "mine")
    with pytest.raises(Conflict, match="already stands for"):
        add_local(home, other, "mine")


@pytest.mark.parametrize("name", ["../x", "UPPER", EMBEDDED, ".hidden", "a b"])
def test_names_that_could_not_be_files_are_refused(home: HermesHome, gguf: Path, name: str) -> None:
    with pytest.raises(UsageError):
        add_local(home, gguf, name)
    assert not list_local(home)


def test_forgetting_leaves_the_file(home: HermesHome, gguf: Path) -> None:
    add_local(home, gguf, "mine")
    remove_local(home, "mine")
    assert gguf.is_file()
    assert list_local(home) == ()
    with pytest.raises(NotFound):
        remove_local(home, "mine")


def test_a_file_that_is_gone_is_named(home: HermesHome, gguf: Path) -> None:
    add_local(home, gguf, "mine")
    gguf.unlink()
    with pytest.raises(NotFound, match="is gone") as caught:
        find_local(home, "mine")
    assert "remove-local mine" in caught.value.hint


def test_the_embedded_model_is_listed_once_it_is_there(home: HermesHome) -> None:
    with pytest.raises(NotFound) as caught:
        find_local(home, EMBEDDED)
    assert "fetch-embedded" in caught.value.hint
    home.subdirectory(home.models_dir)
    embedded_file(home).write_bytes(gguf_bytes({}))
    assert find_local(home, EMBEDDED).path == embedded_file(home)


def test_a_damaged_registry_is_explained(home: HermesHome) -> None:
    home.subdirectory(home.models_dir)
    (home.models_dir / "models.json").write_text("{not json", "utf-8")
    with pytest.raises(StoreError, match=r"models\.json"):
        list_local(home)


def test_small_models_get_the_short_profile_within_their_context(
    home: HermesHome, gguf: Path
) -> None:
    small = info_of(add_local(home, gguf))
    assert (small.own_prompt, small.own_tools) == (TINY_PROMPT, ("read_file", "search_files"))
    assert (small.context_window, small.can_title) == (2048, False)
    large = info_of(LocalModel(name="large", path=gguf, size_bytes=4_000_000_000))
    assert {"json_object", "json_schema"} & small.takes == set()
    assert {"json_object", "json_schema"} <= large.takes
    assert (large.own_prompt, large.own_tools, large.context_window) == (None, None, 16_384)
