"""Small programs the terminal door runs for its user: git, clipboard tools, an editor."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from msgspec import Struct

__all__ = ["Finished", "RunProgram", "run_program"]

SECONDS = 10.0
OUTPUT_BYTES = 25 * 1024 * 1024


class Finished(Struct, frozen=True, kw_only=True):
    """How a program ended."""

    code: int
    output: bytes
    errors: str = ""


class RunProgram(Protocol):
    """Runs a program to its end."""

    async def __call__(
        self, argv: Sequence[str], *, environ: Mapping[str, str], cwd: Path | None = None
    ) -> Finished | None:
        """Return how it ended; None if there is no such program or it took too long."""
        ...


async def run_program(
    argv: Sequence[str], *, environ: Mapping[str, str], cwd: Path | None = None
) -> Finished | None:
    """Run a program without a terminal and return its output, bounded in size and time."""
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            cwd=cwd,
            env=dict(environ),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    try:
        async with asyncio.timeout(SECONDS):
            output, errors = await process.communicate()
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return Finished(
        code=process.returncode or 0,
        output=output[:OUTPUT_BYTES],
        errors=errors.decode(errors="replace").strip(),
    )
