"""The external editor: the input in a file, changed by a person's own program."""

import asyncio
import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from hermes.domain.errors import NotFound

__all__ = ["edit", "editor_command"]

FALLBACKS = ("nano", "vim", "vi")


def editor_command(environ: Mapping[str, str]) -> list[str]:
    """Return the editor to run: `$VISUAL`, `$EDITOR`, or one that is usually there."""
    for name in ("VISUAL", "EDITOR"):
        if environ.get(name, "").strip():
            return shlex.split(environ[name])
    for program in FALLBACKS:
        if shutil.which(program, path=environ.get("PATH")):
            return [program]
    raise NotFound("There is no editor here.", hint="Set EDITOR to the one you use.")


async def edit(text: str, environ: Mapping[str, str], folder: Path) -> str:
    """Let the person change `text` in the editor, which gets the terminal meanwhile."""
    argv = editor_command(environ)
    path = await asyncio.to_thread(_write, text, folder)
    try:
        process = await asyncio.create_subprocess_exec(*argv, str(path), env=dict(environ))
        await process.wait()
        return await asyncio.to_thread(_read, path)
    except OSError as error:
        raise NotFound(
            f"The editor `{argv[0]}` cannot be run: {error.strerror}.", hint="Set EDITOR."
        ) from error
    finally:
        await asyncio.to_thread(path.unlink, missing_ok=True)


def _write(text: str, folder: Path) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix="message-", suffix=".md", dir=folder)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    return Path(name)


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace").rstrip("\n")
