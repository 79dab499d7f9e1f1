"""A process that asks for an approval and then waits to be killed.

    python -m fakes.asking_child HOME WORKDIR TEXT

prints `<session id> <approval id>` for each approval that is asked.
"""

import asyncio
import os
import sys
from pathlib import Path

from hermes.app.build import open_app
from hermes.app.options import AppOptions
from hermes.config.paths import HermesHome
from hermes.domain.events import ApprovalAsked
from hermes.entry.terminal.oneshot import inbound


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


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
