"""The door of the chat platforms: a fleet of adapters, the way in and the replies.

    adapter -> InboundPipeline -> gateway -> turn -> ChatReplies -> adapter

Each platform is looked after on its own (`control.supervision.supervisor`); one
that cannot connect keeps nobody else from talking.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from hermes.control.admission.authz import Access, AuthzSettings
from hermes.control.admission.pipeline import InboundPipeline, PipelineParts, target_of
from hermes.control.commands.wording import spelled
from hermes.control.delivery.place import Connections, Line
from hermes.control.door import Door
from hermes.control.lanes.batches import BatchWindow
from hermes.control.lanes.downloads import Downloads
from hermes.control.supervision.services import BackgroundWork
from hermes.control.supervision.supervisor import (
    AdapterHealth,
    AdapterState,
    ChatAccount,
    Fleet,
    Supervisor,
    SupervisorSettings,
)
from hermes.domain.errors import HermesError, ToolRefused
from hermes.domain.inbound import ChatKind, InboundMessage, InboxEntry
from hermes.domain.outbound import Target
from hermes.domain.ports.platform import (
    Adapter,
    EarlierMessages,
    FileSource,
    InboundSink,
    MenuCommand,
    PlatformFailure,
)
from hermes.domain.profile import current_profile
from hermes.domain.tools import ToolCapabilities, ToolContext
from hermes.domain.turn import Turn, TurnContext
from hermes.entry.chat.companion import ReplyParts
from hermes.entry.chat.context import ChatContext
from hermes.entry.chat.greetings import Greetings
from hermes.entry.chat.replies import Apologies, ChatReplies
from hermes.entry.chat.voice import VoiceMessages

log = logging.getLogger(__name__)

SURROUNDINGS_SECONDS = 5.0
"""So long a turn waits for what was said before it."""


class ChatDoorParts(ReplyParts, frozen=True, kw_only=True):
    accounts: Sequence[ChatAccount]
    renewed: Callable[[], Sequence[ChatAccount]]
    """Returns the accounts as configured now, of the same platforms."""
    media_dir: Path
    """Where files of messages are kept."""
    context: ChatContext
    voices: VoiceMessages
    supervision: SupervisorSettings
    on_change: Callable[[AdapterHealth], None]
    """Told when an adapter's state has changed."""
    admission: Callable[["ChatDoor"], PipelineParts]
    """Makes the way in, which answers through the door."""
    announces: Callable[[str], bool]
    """Platform -> whether a chat is told that the gateway is back after `/restart`."""
    access: Callable[[], Mapping[str, AuthzSettings]]
    """Who may talk where, as configured now."""


class ChatDoor(Door):
    name = "chat"
    shows_notices = True

    def __init__(self, parts: ChatDoorParts) -> None:
        self._platforms = {each.platform.name: each.platform for each in parts.accounts}
        self.platforms = tuple(self._platforms)
        self.capabilities = ToolCapabilities(send=self.send)
        self._parts = parts
        self._downloads = Downloads(parts.media_dir, self._file_source, parts.clock)
        capabilities = {name: each.capabilities for name, each in self._platforms.items()}
        self._connections = Connections(self._line, capabilities, parts.clock, self._beside)
        self.follower = self._replies = ChatReplies(
            parts,
            self._connections,
            access=self._access,
            folder=parts.media_dir / "approvals",
            said=self._said,
        )
        self.do = self._replies.do
        self.apologise = Apologies(self._replies.say_unrecorded, parts.clock).say
        self._way_in = parts.admission(self)
        self._fleet = Fleet([self._supervisor(each) for each in parts.accounts])

    def _beside(self, work: Coroutine[Any, Any, None]) -> object:
        return self._replies.do(work)

    # -- its life ------------------------------------------------------------

    def services(self) -> Sequence[BackgroundWork]:
        parts = self._parts
        greetings = Greetings(
            ledger=parts.ledger,
            clock=parts.clock,
            owner=self._way_in.host.gateway.owner,
            pairing=self._way_in.pairing,
            deliver=self.deliver,
            announces=parts.announces,
        )
        return (self._fleet.run, greetings.run)

    def _supervisor(self, account: ChatAccount) -> Supervisor:
        parts = self._parts
        return Supervisor(account, self._sink, parts.clock, parts.supervision, self._changed)

    def configured(self) -> None:
        known = {
            each.account.name: each for name in self._platforms for each in self._fleet.all_of(name)
        }
        self._fleet.change(
            [known.get(each.name) or self._supervisor(each) for each in self._parts.renewed()]
        )
        self._way_in.authorizer.update(self._parts.access())
        self._fleet.retry()

    async def recover(self) -> None:
        await super().recover()
        await InboundPipeline(self._way_in, "", "").recover(tuple(self._platforms))

    async def open(self) -> None:
        """Return when every platform has connected or failed for the first time."""
        await self._fleet.settled()

    def health(self) -> Sequence[AdapterHealth]:
        return self._fleet.health()

    def _access(self, message: InboundMessage) -> Access:
        return self._way_in.authorizer.check(message)

    async def _said(self, before: InboxEntry) -> None:
        await self._way_in.queues.said(before.session_key, before.id)

    def _changed(self, health: AdapterHealth) -> None:
        if health.state is AdapterState.CONNECTED:
            self._connections.wake()
        self._parts.on_change(health)

    # -- its turns -----------------------------------------------------------

    def window(self, platform: str) -> BatchWindow:
        known = self._platforms[platform]
        return BatchWindow(
            seconds=known.batch_seconds,
            long_seconds=known.long_batch_seconds,
            long_length=int(known.capabilities.max_length * 0.9),
            album_seconds=known.album_seconds,
        )

    async def fetched(self, message: InboundMessage) -> InboundMessage:
        message = await self._surrounded(message)
        heard, told = await self._parts.voices.heard(await self._downloads.fetched(message))
        if told:
            self._parts.group.create_task(self._tell(message, told))
        return heard

    async def _surrounded(self, message: InboundMessage) -> InboundMessage:
        """Add what was said before a mention; the question can be answered without it."""
        line = self._line(message.platform, message.account)
        adapter: object = None if line is None else line.adapter
        alone = message.chat.kind is ChatKind.PRIVATE or not message.mentioned or message.context
        if alone or not isinstance(adapter, EarlierMessages):
            return message
        try:
            async with asyncio.timeout(SURROUNDINGS_SECONDS):
                said = await adapter.said_before(message)
        except (PlatformFailure, TimeoutError) as error:
            log.info("what was said before %s is not known: %s", message.native_id, error)
            return message
        return replace(message, context="\n".join(said))

    async def _tell(self, message: InboundMessage, text: str) -> None:
        """Say something about a message, once, also if it is taken up again."""
        about = f"voice:{message.platform}:{message.account}:{message.native_id}"
        try:
            await self.deliver(target_of(message), text, about)
        except HermesError as error:
            log.warning("nobody was told about a voice message: %s", error.message)

    async def context(self, turn: Turn, entry: InboxEntry) -> TurnContext:
        return await self._parts.context.describe(turn, entry)

    def on_trouble(self, entry: InboxEntry, error: HermesError) -> None:
        self._parts.group.create_task(self.apologise(entry.message, error))

    async def say(self, target: Target, text: str, post_id: str = "") -> None:
        """Say something that is not part of a conversation."""
        mark = self._platforms[target.platform].capabilities.command_mark
        names = [each.name for each in self._way_in.registry.commands(terminal=False)]
        await self._replies.say(target, spelled(text, mark, names), post_id)

    async def deliver(self, target: Target, text: str, delivery_id: str) -> None:
        await self._replies.deliver(self._allowed(target), text, delivery_id)

    def _allowed(self, target: Target) -> Target:
        """Return a target with an account that the agent of the running turn may use.

        That is its own, or one that belongs to no agent: none borrows another's.
        """
        profile, all_of = current_profile(), self._fleet.all_of(target.platform)
        if profile is None or (len(all_of) == 1 and not all_of[0].account.agent):
            return target
        named = self._fleet.of(target.platform, target.account) if target.account else None
        usable = [each for each in all_of if each.account.agent in ("", profile.id)]
        usable.sort(key=lambda each: each.account.agent != profile.id)
        chosen = named if named in usable else next(iter(usable), None)
        if chosen is None or (named is not None and chosen is not named):
            raise HermesError(
                f"{target.platform} has no account there that the agent `{profile.id}` may use.",
                hint="Give the agent a bot of its own, or use one that belongs to no agent.",
            )
        return replace(target, account=chosen.health.account or chosen.account.account)

    async def send(self, context: ToolContext, target: str, text: str) -> None:
        """Send to a home channel or a chat that is allowed: the `send` capability of tools."""
        platform, _, chat = target.partition(":")
        home = await self._parts.context.home(platform) if platform in self._platforms else None
        if home is not None and chat in ("", home.address):
            place: Target = home
        elif chat and platform in self._platforms and self._may_send(target):
            chat_id, _, thread = chat.partition(":")
            place = Target(platform=platform, account="", chat_id=chat_id, thread_id=thread or None)
        else:
            raise ToolRefused(
                f"`{target}` cannot be sent to.",
                hint="Only home channels (the name of a platform where /sethome was used) and what"
                " gateway.message_targets names can.",
            )
        digest = hashlib.sha256(f"{target} {text}".encode()).hexdigest()[:8]
        await self.deliver(place, text, f"send:{context.turn_id}:{context.call_id}:{digest}")

    def _may_send(self, target: str) -> bool:
        allowed = self._parts.context.settings().gateway.message_targets
        return any(fnmatchcase(target, pattern) for pattern in allowed)

    # -- adapters ------------------------------------------------------------

    def account_of(self, platform: str, account: str) -> tuple[str, str]:
        supervisor = self._fleet.of(platform, account)
        own = supervisor.account if supervisor is not None else None
        return (own.account, own.agent) if own is not None else ("", "")

    async def _sink(self, platform: str, adapter: Adapter) -> InboundSink:
        await adapter.publish_commands(
            [
                MenuCommand(name=c.name, help=c.help, args=c.args, choices=c.choices)
                for c in self._way_in.registry.commands(terminal=False)
            ]
        )
        pipeline = InboundPipeline(self._way_in, platform, adapter.account)
        await pipeline.recover((platform,))
        return pipeline

    def _line(self, platform: str, account: str) -> Line | None:
        supervisor = self._fleet.of(platform, account)
        if supervisor is None or supervisor.adapter is None:
            return None
        return Line(adapter=supervisor.adapter, sent=supervisor.sent)

    def _file_source(self, platform: str, account: str) -> FileSource | None:
        line = self._line(platform, account)
        adapter: object = None if line is None else line.adapter
        return adapter if isinstance(adapter, FileSource) else None
