"""A chat as the door that slash commands talk to."""

from collections.abc import Awaitable, Callable

from msgspec import Struct
from msgspec.structs import replace

from hermes.control.busy import BusyMode, submit_while_busy
from hermes.control.commands.context import Screen
from hermes.control.gateway import Gateway
from hermes.domain.channel import Attachment
from hermes.domain.ids import new_id
from hermes.domain.inbound import InboundMessage
from hermes.domain.outbound import Target
from hermes.domain.session import Session

__all__ = ["ChatCommandDoor"]


class ChatCommandDoor(Struct, kw_only=True):
    """Where one command was sent."""

    gateway: Gateway
    agent_id: str
    message: InboundMessage
    session: Session
    say: Callable[[Target, str], Awaitable[None]]

    @property
    def source(self) -> str:
        """The platform."""
        return self.message.platform

    @property
    def user_id(self) -> str:
        """Who sent it."""
        return self.message.sender.id

    @property
    def screen(self) -> Screen | None:
        """Chats have no screen."""
        return None

    async def reply(self, text: str) -> None:
        """Say something that is not part of the conversation."""
        message = self.message
        target = Target(
            platform=message.platform,
            account=message.account,
            chat_id=message.chat.id,
            thread_id=message.thread_id,
        )
        await self.say(target, text)

    async def switch(self, session: Session | None) -> None:
        """Point the chat at another conversation; None opens a new one."""
        if session is None:
            session = await self.gateway.open_session(self.agent_id, self.source, self.user_id)
        key = self.gateway.key_of(self.agent_id, self.message)
        await self.gateway.ledger.bind_key(key, session.id, self.gateway.clock.now())
        self.session = session

    async def ensure_session(self) -> Session:
        """Return the current conversation."""
        return self.session

    async def submit(
        self, text: str, *, mode: BusyMode, attachments: tuple[Attachment, ...] = ()
    ) -> None:
        """Send text to the agent as if it had been typed here."""
        message = replace(
            self.message, text=text, attachments=attachments, native_id=new_id("command")
        )
        await submit_while_busy(
            self.gateway, self.agent_id, message, session_id=self.session.id, mode=mode
        )

    async def refresh(self) -> None:
        """Nothing is shown that could be out of date."""
