"""The real `hermes` command in a home of its own, talking to a fake model."""

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec
import yaml

__all__ = ["Hermes", "Outcome"]

KEPT = ("PATH", "LANG", "LC_ALL", "TMPDIR")


class Outcome(msgspec.Struct, kw_only=True):
    """What a finished command left behind."""

    code: int
    out: str
    err: str


class Hermes:
    """Runs `hermes` with a home below `folder`."""

    def __init__(self, folder: Path, base_url: str = "", config: object = None) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.work = folder / "work"
        self.home.mkdir(exist_ok=True)
        self.work.mkdir(exist_ok=True)
        model = {"provider": "custom", "default": "fake-1", "base_url": base_url}
        document = {"model": model} if base_url else {}
        document.update(config if isinstance(config, dict) else {})
        if document:
            (self.home / "config.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
        self.environ: dict[str, str] = {
            **{name: os.environ[name] for name in KEPT if name in os.environ},
            "HERMES_HOME": str(self.home),
            "HOME": str(folder),
        }

    def argv(self, *arguments: str) -> list[str]:
        """Return the command line of a command."""
        return [sys.executable, "-m", "hermes.cli", *arguments]

    async def start(
        self, *arguments: str, environ: Mapping[str, str] | None = None
    ) -> asyncio.subprocess.Process:
        """Start a command without waiting for it."""
        return await asyncio.create_subprocess_exec(
            *self.argv(*arguments),
            cwd=self.work,
            env={**self.environ, **(environ or {})},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def run(
        self, *arguments: str, stdin: str = "", environ: Mapping[str, str] | None = None
    ) -> Outcome:
        """Run a command to its end."""
        process = await self.start(*arguments, environ=environ)
        return await self.finish(process, stdin)

    async def finish(self, process: asyncio.subprocess.Process, stdin: str = "") -> Outcome:
        """Wait for a started command."""
        async with asyncio.timeout(45):
            out, err = await process.communicate(stdin.encode())
        assert process.returncode is not None
        return Outcome(code=process.returncode, out=out.decode(), err=err.decode())
