"""The door of the chat platforms, put together from a running app."""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from hermes.app.doors import DoorContext, outgoing_files
from hermes.app.options import AppOptions
from hermes.app.platforms import (
    PlatformAccount,
    enabled_accounts,
    enabled_platforms,
    renewed_accounts,
)
from hermes.app.settings import access_settings
from hermes.config.loader import LoadedConfig
from hermes.control.admission.authz import Authorizer, AuthzSettings
from hermes.control.admission.pairing import Pairing
from hermes.control.admission.pipeline import PipelineParts, PlaceQueues
from hermes.control.admission.resets import check_policies
from hermes.control.admission.routing import RouteDecision, facts_of
from hermes.control.commands.builtin import builtin_registry
from hermes.control.supervision.supervisor import SupervisorSettings
from hermes.domain.approvals import Choice
from hermes.domain.inbound import InboundMessage
from hermes.domain.ports.clock import zone_named
from hermes.domain.ports.platform import SettingPlaces
from hermes.entry.chat.context import ChatContext
from hermes.entry.chat.door import ChatDoor, ChatDoorParts
from hermes.entry.chat.voice import VoiceMessages
from hermes.execution.clock import SystemClock
from hermes.state.pairing import PairingFiles
from hermes.streaming.chat.settings import presentation


def enabled(loaded: LoadedConfig, options: AppOptions) -> bool:
    return bool(enabled_platforms(loaded, options.home))


def check(loaded: LoadedConfig, options: AppOptions) -> None:
    accounts = enabled_accounts(lambda: loaded, options, SystemClock())
    access_settings(loaded, _access_places(accounts))
    check_policies(loaded.config.session_reset)
    zone_named(loaded.config.timezone)


def open_door(context: DoorContext) -> ChatDoor:
    app = context.app
    accounts = enabled_accounts(lambda: app.loaded, app.options, app.clock)
    names = _prefixes(accounts)

    def renewed() -> list[PlatformAccount]:
        accounts[:] = renewed_accounts(accounts, lambda: app.loaded, app.options)
        return accounts

    def access() -> dict[str, AuthzSettings]:
        return access_settings(app.loaded, _access_places(accounts))

    return ChatDoor(
        ChatDoorParts(
            accounts=tuple(accounts),
            renewed=renewed,
            media_dir=app.options.home.cache_dir / "media",
            ledger=app.ledger,
            clock=app.clock,
            group=context.group,
            context=ChatContext(
                ledger=app.ledger,
                prompts={name: _prompts(accounts, name) for name in names},
                settings=app.settings,
            ),
            voices=VoiceMessages(
                transcribe=app.models.transcriber(
                    lambda: app.settings().stt, app.variable
                ).transcribe,
                settings=app.settings,
            ),
            presentation=lambda name: presentation(app.settings(), name),
            stage=outgoing_files(app).staged,
            patience=lambda: app.settings().agent,
            reactions=lambda name: any(
                each.reactions() for each in accounts if each.platform.name == name
            ),
            hooks=context.hooks,
            interrupt=lambda session_id, turn_id: app.gateway.interrupt(
                session_id, turn_id=turn_id
            ),
            deny=lambda approval_id, reason: app.answers.answer(
                approval_id, Choice.DENY, by="", text=reason
            ),
            supervision=SupervisorSettings(
                connect_timeout=app.settings().gateway.platform_connect_timeout
            ),
            on_change=context.state_file.changed,
            admission=lambda door: _admission(context, door, access()),
            announces=lambda name: any(
                each.announces() for each in accounts if each.platform.name == name
            ),
            access=access,
        )
    )


def _prefixes(accounts: Sequence[PlatformAccount]) -> dict[str, str]:
    """Return the platforms of these accounts with the prefix of their variables."""
    return {each.platform.name: each.platform.prefix for each in accounts}


def _access_places(
    accounts: Sequence[PlatformAccount],
) -> list[tuple[str, str, str, SettingPlaces | None]]:
    """Return whose lists of people there are: those of platforms, and those of their accounts."""
    general = [(name, name, prefix, None) for name, prefix in _prefixes(accounts).items()]
    return general + [
        (each.name, each.platform.name, each.platform.prefix, each.places)
        for each in accounts
        if each.account
    ]


def _prompts(accounts: Sequence[PlatformAccount], name: str) -> Callable[[str, str | None], str]:
    """Return how the extra prompt of a chat is found; one that an account has, all have."""
    return lambda chat_id, thread_id: next(
        (
            text
            for each in accounts
            if each.platform.name == name and (text := each.channel_prompt(chat_id, thread_id))
        ),
        "",
    )


def _admission(
    context: DoorContext, door: ChatDoor, access: dict[str, AuthzSettings]
) -> PipelineParts:
    app = context.app

    async def route(message: InboundMessage) -> RouteDecision:
        name, owner = door.account_of(message.platform, message.account)
        return await context.router.route(facts_of(message, name), owner=owner, text=message.text)

    def declared(message: InboundMessage) -> bool:
        name, owner = door.account_of(message.platform, message.account)
        return not context.hooks.chooses or context.router.declared(facts_of(message, name), owner)

    pairing = Pairing(PairingFiles(app.options.home.platforms_dir / "pairing"), app.clock)
    return PipelineParts(
        host=replace(app.commands(), restart=context.restart),
        registry=builtin_registry(),
        authorizer=Authorizer(
            access,
            paired=pairing.is_paired,
            account=lambda platform, account: door.account_of(platform, account)[0],
        ),
        pairing=pairing,
        background_age=app.environments.background_age,
        zone=zone_named(app.settings().timezone),
        hooks=context.hooks,
        queues=PlaceQueues(door.do),
        route=route,
        declared=declared,
        say=door.say,
        apologise=door.apologise,
    )
