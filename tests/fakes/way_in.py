"""The way in for the people of a platform, with scripted turns and without a platform."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC
from typing import Any

from fakes.chat_kit import ChatKit
from hermes.control.admission.authz import Authorizer, AuthzSettings
from hermes.control.admission.pairing import Pairing
from hermes.control.admission.pipeline import InboundPipeline, PipelineParts, PlaceQueues
from hermes.control.admission.routing import RouteDecision
from hermes.control.commands.builtin import builtin_registry
from hermes.control.hooks import HookBus
from hermes.domain.approvals import Approval
from hermes.domain.ids import new_id
from hermes.domain.inbound import Chat, ChatKind, InboundMessage, ReplyRef, Sender
from hermes.domain.outbound import Target
from hermes.domain.ports.platform import ButtonPress
from hermes.domain.settings import Settings
from hermes.entry.chat.replies import Apologies
from hermes.state.pairing import PairingFiles

__all__ = ["Said", "WayIn", "pipeline"]

Said = list[tuple[str, str]]
"""(chat, text) of everything that was said outside of turns."""


def pipeline(
    kit: ChatKit,
    do: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    said: Said,
    access: AuthzSettings,
    *,
    agent_id: str = "main",
    paired: str = "",
    gate: asyncio.Event | None = None,
    hook: asyncio.Event | None = None,
) -> InboundPipeline:
    """Make a way in; while `gate` is unset nothing can be said.

    With `hook` the agent of private chats is not known before it is set.
    """

    async def say(target: Target, text: str, _post_id: str = "") -> None:
        if gate is not None:
            await gate.wait()
        said.append((target.chat_id, text))

    def declared(message: InboundMessage) -> bool:
        return hook is None or message.chat.kind is not ChatKind.PRIVATE

    async def route(message: InboundMessage) -> RouteDecision:
        if hook is not None and not declared(message):
            await hook.wait()
        return RouteDecision(agent=agent_id, rule="test", why="")

    parts = PipelineParts(
        host=kit.host(Settings()),
        registry=builtin_registry(),
        authorizer=Authorizer(
            {access.platform: access}, paired=lambda _platform, sender: sender.id == paired
        ),
        pairing=Pairing(PairingFiles(kit.profile.home / "pairing"), kit.clock),
        background_age=lambda _session_id: None,
        zone=UTC,
        hooks=HookBus(),
        queues=PlaceQueues(do),
        route=route,
        declared=declared,
        say=say,
        apologise=Apologies(say, kit.clock).say,
    )
    return InboundPipeline(parts, access.platform, "bot")


class WayIn:
    """People who talk, answer and press."""

    def __init__(
        self, kit: ChatKit, group: asyncio.TaskGroup, access: AuthzSettings, paired: str = ""
    ) -> None:
        self.kit = kit
        self.said: Said = []
        self._platform = access.platform
        self._group = group
        self._behind: set[asyncio.Task[None]] = set()
        self._pipeline = pipeline(kit, self._do, self.said, access, paired=paired)

    def _do(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._group.create_task(work)
        self._behind.add(task)
        task.add_done_callback(self._behind.discard)
        return task

    async def say(
        self,
        sender: Sender,
        chat: Chat,
        text: str,
        *,
        thread: str | None = None,
        reply_to: str | None = None,
    ) -> None:
        message = self._message(sender, chat, text, thread, reply_to)
        await self._pipeline.message(message)
        while self._behind:
            await asyncio.wait(set(self._behind))

    async def overhear(
        self, sender: Sender, chat: Chat, text: str, thread: str | None = None
    ) -> None:
        """Say something in a group without speaking to the bot."""
        await self._pipeline.overheard(self._message(sender, chat, text, thread, None))

    def _message(
        self, sender: Sender, chat: Chat, text: str, thread: str | None, reply_to: str | None
    ) -> InboundMessage:
        return InboundMessage(
            platform=self._platform,
            account="bot",
            native_id=new_id("m"),
            chat=chat,
            sender=sender,
            text=text,
            sent_at=self.kit.clock.now(),
            thread_id=thread,
            reply_to=ReplyRef(native_id=reply_to, own=True) if reply_to else None,
        )

    async def told(self, sender: Sender, chat: Chat, text: str, thread: str | None = None) -> str:
        """Say something and return the next thing that is said outside of a turn."""
        before = len(self.said)
        await self.say(sender, chat, text, thread=thread)
        await self.until(lambda: len(self.said) > before)
        return self.said[before][1]

    async def press(self, sender: Sender, chat: Chat, data: str) -> str:
        return await self._pipeline.press(
            ButtonPress(
                platform=self._platform,
                account="bot",
                native_id=new_id("press"),
                chat=chat,
                sender=sender,
                message_id="1",
                data=data,
            )
        )

    async def asked(self, sender: Sender, chat: Chat, text: str, thread: str | None = None) -> str:
        """Begin a turn that asks for something; return the id of what it asks."""
        before = {each.request.id for each in await self.kit.ledger.pending_approvals()}
        await self.say(sender, chat, text, thread=thread)
        async with asyncio.timeout(10):
            while True:
                for each in await self.kit.ledger.pending_approvals():
                    if each.request.id not in before:
                        return each.request.id
                await asyncio.sleep(0.005)

    async def approval(self, approval_id: str) -> Approval:
        found = await self.kit.ledger.approval(approval_id)
        assert found is not None
        return found

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(10):
            while not condition():  # noqa: ASYNC110 (replies come from several places)
                await asyncio.sleep(0.005)


def private(person: Sender) -> Chat:
    return Chat(kind=ChatKind.PRIVATE, id=person.id)
