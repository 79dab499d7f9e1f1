from pathlib import Path

import pytest

from hermes.config.paths import HermesHome
from hermes.domain.errors import ConfigError


def test_the_home_is_below_the_users_home_unless_named() -> None:
    assert HermesHome.from_environ({"HOME": "/home/ann"}).root == Path("/home/ann/.hermes")
    assert HermesHome.from_environ({"HOME": "/home/ann", "HERMES_HOME": " "}).root == Path(
        "/home/ann/.hermes"
    )
    assert HermesHome.from_environ({"HERMES_HOME": "/srv/h"}).root == Path("/srv/h")
    assert HermesHome.from_environ({"HOME": "/home/ann", "HERMES_HOME": "~/h"}).root == Path(
        "/home/ann/h"
    )


def test_a_relative_home_does_not_change_with_the_directory() -> None:
    assert HermesHome.from_environ({"HERMES_HOME": "here"}).root.is_absolute()


def test_naming_paths_creates_nothing_and_ensure_creates_a_private_home(tmp_path: Path) -> None:
    home = HermesHome(root=tmp_path / "a" / "b")
    assert home.database.name == "state.db"
    assert home.config_file == tmp_path / "a" / "b" / "config.yaml"
    assert not (tmp_path / "a").exists()
    home.ensure()
    home.ensure()
    assert home.root.stat().st_mode & 0o777 == 0o700


def test_a_subdirectory_is_made_when_it_is_needed(tmp_path: Path) -> None:
    home = HermesHome(root=tmp_path / "h")
    assert home.subdirectory(home.backups_dir).is_dir()
    assert not home.logs_dir.exists()


def test_a_further_agent_has_a_home_of_the_same_shape(tmp_path: Path) -> None:
    home = HermesHome(root=tmp_path)
    assert home.profile("coder").soul_file == tmp_path / "profiles" / "coder" / "SOUL.md"


def test_a_file_in_place_of_the_home_is_explained(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(ConfigError, match="not a directory") as caught:
        HermesHome(root=blocked).ensure()
    assert "HERMES_HOME" in caught.value.hint


def test_a_home_that_cannot_be_created_is_explained(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(ConfigError, match="cannot be created") as caught:
        HermesHome(root=blocked / "below").ensure()
    assert "HERMES_HOME" in caught.value.hint
    with pytest.raises(ConfigError, match="cannot be created"):
        HermesHome(root=Path("/proc/no/such/home")).ensure()


def test_a_subdirectory_that_cannot_be_created_is_explained(tmp_path: Path) -> None:
    home = HermesHome(root=tmp_path)
    home.logs_dir.write_text("")
    with pytest.raises(ConfigError, match="logs cannot be created"):
        home.subdirectory(home.logs_dir)
