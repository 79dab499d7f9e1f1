"""A process that asks for an approval and then waits to be killed.

    python -m fakes.asking_child HOME WORKDIR TEXT

prints `<session id> <approval id>` for each approval that is asked.
"""

import asyncio
import os
import sys
from pathlib import Path

from fakes.command import Hermes
from hermes.app.build import open_app
from hermes.app.options import AppOptions
from hermes.config.paths import HermesHome
from hermes.domain.events import ApprovalAsked
from hermes.entry.terminal.oneshot import inbound

TESTS = Path(__file__).parents[1]


def options(home: Path, work: Path) -> AppOptions:
    environ = {"HOME": str(home.parent), "PATH": os.environ["PATH"]}
    return AppOptions(home=HermesHome(root=home), environ=environ, cwd=work, can_ask=True)


async def main(home: Path, work: Path, text: str) -> None:
    async with open_app(options(home, work)) as app:
        session = await app.gateway.open_session("main", "cli", "ann")
        message = inbound(session, text, "ann", 0.0)
        ticket = await app.gateway.submit("main", message, session_id=session.id)
        async for event in (await ticket.stream()).follow():
            if isinstance(event, ApprovalAsked):
                sys.stdout.write(f"{session.id} {event.request.id}\n")
                sys.stdout.flush()


async def asked_and_killed(hermes: Hermes, approvals: int = 1) -> list[list[str]]:
    """Let a process ask, then kill it; return (session id, approval id) of each request."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "fakes.asking_child", str(hermes.home), str(hermes.work), "clean up",
        cwd=TESTS, env={**hermes.environ, "PYTHONPATH": str(TESTS)}, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    async with asyncio.timeout(30):
        lines = [(await process.stdout.readline()).decode().split() for _ in range(approvals)]
    process.kill()
    await process.communicate()
    return lines


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
