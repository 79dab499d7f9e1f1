"""A door for slash commands that records what happens at it."""

import asyncio
from collections.abc import Sequence

from fakes.chat_kit import MODELS, ChatKit
from hermes.control.commands.builtin import builtin_registry
from hermes.control.commands.context import CommandContext, Screen
from hermes.control.commands.registry import Invocation, parse, run_command
from hermes.control.lanes.gateway import BusyMode, submit_while_busy
from hermes.domain.events import ApprovalAsked
from hermes.domain.inbound import Attachment
from hermes.domain.profile import AgentProfile
from hermes.domain.session import Session
from hermes.domain.settings import Settings
from hermes.domain.settings.models import Provider
from hermes.entry.terminal.oneshot import inbound

__all__ = ["RecordingDoor", "RecordingScreen"]


class RecordingScreen:
    """Notes what commands do to it."""

    def __init__(self) -> None:
        self.done: list[tuple[object, ...]] = []
        self.choice: int | None = None
        self.status_shown = True

    def clear(self) -> None:
        self.done.append(("clear",))

    def leave(self) -> None:
        self.done.append(("leave",))

    def prefill(self, text: str) -> None:
        self.done.append(("prefill", text))

    async def compose(self, text: str) -> None:
        self.done.append(("compose", text))

    def set_status_bar(self, *, shown: bool | None) -> bool:
        self.status_shown = not self.status_shown if shown is None else shown
        return self.status_shown

    def skins(self) -> Sequence[str]:
        return ["default", "mono"]

    async def use_agent(self, profile: AgentProfile) -> None:
        self.done.append(("agent", profile.id))

    def set_skin(self, name: str) -> None:
        self.done.append(("skin", name))

    def copy(self, text: str) -> None:
        self.done.append(("copy", text))

    async def attach_image(self, path: str | None) -> str:
        self.done.append(("image", path))
        return "Attached."

    async def pick(self, title: str, options: Sequence[str]) -> int | None:
        self.done.append(("pick", title, *options))
        return self.choice


class RecordingDoor:
    """Runs commands against a kit and keeps the replies."""

    def __init__(self, kit: ChatKit, *, terminal: bool = True, admin: bool = True) -> None:
        self.kit = kit
        self.replies: list[str] = []
        self.effects: list[BusyMode | None] = []
        self.session: Session | None = None
        self.recorded = RecordingScreen()
        self._terminal = terminal
        self._admin = admin
        self._host = kit.host(Settings(providers={"fake": Provider(models=tuple(MODELS))}))

    async def type(self, text: str) -> str:
        """Run a command and return what it said."""
        invocation = parse(text)
        assert isinstance(invocation, Invocation)
        before = len(self.replies)
        if self.session is not None:
            self.session = await self.kit.ledger.session(self.session.id)
        context = CommandContext(
            host=self._host, caller=self, agent_id="main", session=self.session, admin=self._admin
        )
        await run_command(builtin_registry(), context, invocation)
        return "\n".join(self.replies[before:])

    async def ask(self, text: str) -> None:
        """Say something and wait until it is answered."""
        await self.submit(text, mode=BusyMode.QUEUE)
        await self.idle()

    async def idle(self) -> None:
        """Wait until the session has nothing to do."""
        assert self.session is not None
        async with asyncio.timeout(10):
            await self.kit.gateway.idle(self.session.id)

    async def begin(self, text: str) -> None:
        """Say something whose turn goes on, and wait until it runs."""
        running = asyncio.Event()
        with self.kit.gateway.doors.watching(lambda _job: running.set()):
            await self.submit(text, mode=BusyMode.QUEUE)
            async with asyncio.timeout(10):
                await running.wait()

    async def asked(self) -> None:
        """Wait until the running turn asks for something."""
        assert self.session is not None
        stream = self.kit.gateway.current_turn(self.session.id)
        assert stream is not None
        async with asyncio.timeout(10):
            async for event in stream.follow():
                if isinstance(event, ApprovalAsked):
                    return

    # -- Door --------------------------------------------------------------

    @property
    def source(self) -> str:
        return "cli"

    @property
    def user_id(self) -> str:
        return "tester"

    @property
    def screen(self) -> Screen | None:
        return self.recorded if self._terminal else None

    async def reply(self, text: str) -> None:
        self.replies.append(text)

    async def switch(self, session: Session | None) -> None:
        self.session = session

    async def ensure_session(self) -> Session:
        if self.session is None:
            self.session = await self.kit.gateway.open_session("main", "cli", "tester")
        return self.session

    async def submit(
        self, text: str, *, mode: BusyMode, attachments: tuple[Attachment, ...] = ()
    ) -> None:
        session = await self.ensure_session()
        message = inbound(session, text, "tester", self.kit.clock.now(), attachments)
        submission = await submit_while_busy(
            self.kit.gateway, "main", message, session_id=session.id, mode=mode
        )
        self.effects.append(submission.effect)

    async def refresh(self) -> None:
        if self.session is not None:
            self.session = await self.kit.ledger.session(self.session.id)
