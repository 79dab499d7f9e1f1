"""After set-up nothing needs a network but the model one has chosen."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from fakes.command import Hermes

COMMANDS = (
    ["config", "show"],
    ["config", "check"],
    ["sessions", "list"],
    ["sessions", "stats"],
    ["approvals", "test", "ls"],
    ["model", "show"],
    ["prompt-size"],
    ["pairing", "list"],
    ["hooks", "list"],
)

needs_namespaces = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None,
    reason="a network namespace of its own needs root and `unshare`",
)


@needs_namespaces
async def test_commands_work_without_any_network(tmp_path: Path) -> None:
    hermes = Hermes(tmp_path, "http://127.0.0.1:9/v1")
    for command in COMMANDS:
        process = await asyncio.create_subprocess_exec(
            "unshare", "--net", *hermes.argv(*command),
            cwd=hermes.work, env=hermes.environ,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        outcome = await hermes.finish(process)
        assert outcome.code == 0, (command, outcome.err)


@needs_namespaces
async def test_a_question_without_a_network_is_kept_and_explained(tmp_path: Path) -> None:
    hermes = Hermes(tmp_path, "http://127.0.0.1:9/v1", {"agent": {"api_max_retries": 0}})
    process = await asyncio.create_subprocess_exec(
        "unshare", "--net", *hermes.argv("chat", "-q", "remember this question"),
        cwd=hermes.work, env=hermes.environ, stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    outcome = await hermes.finish(process)
    assert outcome.code == 1
    assert "->" in outcome.err
    listed = await hermes.run("sessions", "list")
    assert "remember this question" in listed.out
