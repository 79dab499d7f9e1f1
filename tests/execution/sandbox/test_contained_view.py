import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.domain.errors import HermesError, NotFound, UsageError
from hermes.domain.ports.execution import digest
from hermes.execution.backends.sandbox.view import View

SECRET = b"outside"
NAMES = ("a", "b", "c")
targets = st.lists(st.sampled_from([*NAMES, "..", ".", "outside", ""]), min_size=1, max_size=6)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("view")


@given(
    links=st.lists(
        st.tuples(
            st.sampled_from(["", "a/", "b/"]), st.sampled_from(NAMES), targets, st.booleans()
        ),
        max_size=6,
    ),
    path=targets,
)
@settings(max_examples=200, deadline=None)
def test_no_arrangement_of_links_leads_outside(
    base: Path,
    links: list[tuple[str, str, list[str], bool]],
    path: list[str],
) -> None:
    root = base / os.urandom(6).hex() / "root"
    root.mkdir(parents=True)
    outside = root.parent / "outside"
    outside.write_bytes(SECRET)
    for directory in ("a", "b"):
        (root / directory).mkdir()
    for place, name, parts, absolute in links:
        target = str(outside) if parts[-1] == "outside" and absolute else "/".join(parts)
        try:
            (root / place / name).symlink_to(("/" if absolute else "") + (target or "."))
        except OSError:
            continue
    view = View(str(root), ("/",))
    for text in ("/".join(path), "/" + "/".join(path)):
        for action in (
            lambda where: view.read(where, 0, None) == SECRET,
            lambda where: "root" in {entry.name for entry in view.list_dir(where)},
            lambda where: view.write(where, b"changed"),
            view.remove,
        ):
            try:
                assert not action(text)
            except HermesError:
                continue
    assert outside.read_bytes() == SECRET
    assert sorted(entry.name for entry in root.parent.iterdir()) == ["outside", "root"]


def test_absolute_links_start_at_the_root_of_the_view(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/f").write_bytes(b"inside")
    (tmp_path / "link").symlink_to("/data/f")
    view = View(str(tmp_path), ("/data",))
    assert view.read("/link", 0, None) == b"inside"
    view.write("link", b"new")
    assert (tmp_path / "data/f").read_bytes() == b"new"
    with pytest.raises(HermesError, match="read-only"):
        view.write("/other", b"x")
    with pytest.raises(NotFound):
        view.read("/etc/passwd", 0, None)


def test_a_view_of_nothing_says_so(tmp_path: Path) -> None:
    with pytest.raises(HermesError, match="not running"):
        View(str(tmp_path / "gone"), ()).read("/f", 0, None)


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    view = View(str(tmp_path), ("/",))
    before = len(list(Path("/proc/self/fd").iterdir()))
    view.write("/d/x/y", b"1")
    view.list_dir("/d/x/..")
    for bad in ("/d/nope/z", "/d/x/y/z", "/proc/self"):
        with pytest.raises(HermesError):
            view.read(bad, 0, None)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_links_that_lead_through_very_many_folders_are_not_followed(tmp_path: Path) -> None:
    """A chain of them costs no more than one long path, and a listing follows none."""
    deep = "/".join(["d"] * 150)
    (tmp_path / deep).mkdir(parents=True)
    (tmp_path / "many").mkdir()
    (tmp_path / "l38").write_bytes(b"x")
    for number in range(38):
        (tmp_path / f"l{number}").symlink_to(f"{deep}/{'../' * 150}l{number + 1}")
    for number in range(3000):
        (tmp_path / f"many/{number}").symlink_to("../l0")
    (tmp_path / "many/folder").symlink_to("../d")
    view = View(str(tmp_path), ("/",))
    assert view.read("l33", 0, None) == b"x"
    with pytest.raises(HermesError, match="too many directories and links on the way"):
        view.read("l0", 0, None)
    assert not any(entry.is_dir for entry in view.list_dir("many"))


def test_of_a_very_full_folder_only_so_much_is_listed(tmp_path: Path) -> None:
    for number in range(20_001):
        (tmp_path / str(number)).touch()
    assert len(View(str(tmp_path), ()).list_dir("/")) == 20_000


def test_a_file_that_does_not_fit_into_memory_is_neither_read_nor_compared(tmp_path: Path) -> None:
    for name in ("f", ".python-version"):
        (tmp_path / name).write_bytes(b"3.12\n")
        os.truncate(tmp_path / name, 1 << 42)
    view = View(str(tmp_path), ("/",), project="/")
    for action in (
        lambda: view.read("f", 0, None),
        lambda: view.write("f", b"new", digest(b"3.12\n")),
        lambda: view.write(".python-version", b"3.13\n"),
    ):
        with pytest.raises(UsageError, match="too large"):
            action()
    assert view.read("f", 0, 5) == b"3.12\n"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".python-version", "f"]
