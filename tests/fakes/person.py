"""A person with a home, secrets and tools in it, and a project that Hermes works on."""

import asyncio
import os
import subprocess
import time
from pathlib import Path

from fakes.boxes import Boxes
from hermes.domain.approvals import Gate
from hermes.domain.ports.execution import Environment
from hermes.domain.settings.live import LiveSettings
from hermes.domain.tools import Intent
from hermes.execution.backend import PooledEnvironment
from hermes.execution.policy.host import HostPolicy

KEY = "PRIVATE KEY"


def saved(file: Path, text: str) -> None:
    """Save a file as editors do: another one takes its place."""
    draft = file.with_name("draft")
    draft.write_text(text)
    draft.rename(file)


def _wait_for(path: Path) -> None:
    while not os.path.lexists(path):
        time.sleep(0.02)


async def until_there(path: Path) -> None:
    await asyncio.to_thread(_wait_for, path)


class Person:
    """A home with secrets and tools, and a project in it."""

    def __init__(self, root: Path) -> None:
        self.home = root / "person"
        self.project = self.home / "src/project"
        self.project.mkdir(parents=True)
        for name in (".ssh/id_ed25519", ".netrc", ".config/gh/hosts.yml", "letter.txt"):
            self.file(name, KEY)
        self.file(".cargo/credentials.toml", KEY)
        self.file(".cargo/bin/tool", "#!/bin/sh\necho tool of the home\n").chmod(0o755)
        self.file(".gitconfig", "[user]\nname = A Person\nemail = a@example.org\n")
        self.git("init", "-q")
        self.git("commit", "-q", "--allow-empty", "-m", "first")
        self.boxes = Boxes(
            "sandbox",
            root / "hermes",
            base_env={
                "HOME": str(self.home),
                "PATH": f"{self.project}/.venv/bin:{self.home}/.cargo/bin:/usr/bin:/bin",
                "SSH_AUTH_SOCK": "/run/user/0/agent",
                "DB_PASS": "secret",
            },
            project=str(self.project),
        )

    def file(self, name: str, text: str) -> Path:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def git(self, *words: str) -> str:
        env = {"PATH": "/usr/bin:/bin", "HOME": str(self.home)}
        return subprocess.run(
            ("git", "-C", self.project, *words), env=env, check=True, capture_output=True, text=True
        ).stdout

    async def open(self, session: str = "s1") -> PooledEnvironment:
        return await self.boxes.pool.get("main", session, str(self.project))

    async def judged(self, command: str, environment: Environment, escalate: str = "") -> Gate:
        policy = HostPolicy(LiveSettings(), {"HOME": str(self.home)}, self.boxes.home)
        intent = Intent(command=command, escalate=escalate)
        return (await policy.judge(intent, environment, grants=(), trusted=False)).gate
