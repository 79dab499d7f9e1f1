"""The commands Hermes comes with, in the order of help."""

from functools import partial

from hermes.control.commands import conversation, info, model, running
from hermes.control.commands.context import REASONING_EFFORTS, CommandContext, ToolDetail
from hermes.control.commands.registry import (
    Category,
    Command,
    CommandRegistry,
    CommandSpec,
    Handler,
    Invocation,
    Where,
)
from hermes.control.delivery.home_channel import HomeChannel, set_home_channel
from hermes.control.lanes.busy_modes import BusyMode
from hermes.domain.errors import UsageError


async def sethome(context: CommandContext, _invocation: Invocation) -> None:
    chat = context.chat
    if chat is None:
        raise UsageError("Only a chat can be a home channel.", hint="Send /sethome there.")
    home = HomeChannel(
        platform=chat.platform,
        account=chat.account,
        chat_id=chat.chat_id,
        thread_id=chat.thread_id,
        name=context.chat_name,
        chat_kind=chat.chat_kind,
    )
    await set_home_channel(context.ledger, home)
    where = "topic" if chat.thread_id is not None else "chat"
    await context.reply(
        f"This {where} is the home channel of {chat.platform} now: reminders and results"
        " that nobody waits for come here."
    )


ON_OFF = ("on", "off")
Row = tuple[CommandSpec, Handler]


def builtin_registry(extra: tuple[Command, ...] = ()) -> CommandRegistry:
    """Build the registry, with commands of plugins or skills after the built-in ones."""
    registry: CommandRegistry

    def itself() -> CommandRegistry:
        return registry

    spec = partial(CommandSpec, category=Category.INFO)
    helpers: tuple[Row, ...] = (
        (
            spec(name="help", aliases=("h",), args="[command]", help="List or explain commands"),
            info.listing(itself),
        ),
        (
            spec(name="commands", args="[page]", help="List commands in pages", where=Where.CHAT),
            info.paged(itself),
        ),
    )
    rows = (*_session(), *_running(), *_configuration(), *_tools(), *helpers, *_info())
    registry = CommandRegistry((*(Command(spec=row, run=handler) for row, handler in rows), *extra))
    return registry


def _session() -> tuple[Row, ...]:
    spec = partial(CommandSpec, category=Category.SESSION)
    idle = partial(spec, needs_idle=True)
    terminal = partial(spec, where=Where.TERMINAL)
    return (
        (
            idle(name="new", aliases=("reset",), args="[title]", help="Begin a new conversation"),
            conversation.new,
        ),
        (
            idle(name="clear", where=Where.TERMINAL, help="Empty the screen and begin anew"),
            conversation.clear,
        ),
        (idle(name="retry", help="Ask the last message again"), conversation.retry),
        (idle(name="undo", args="[N]", help="Take back the last exchanges"), conversation.undo),
        (spec(name="title", args="[name]", help="Show or set the title"), conversation.title),
        (
            idle(name="resume", args="[id|title]", help="Go on with an earlier conversation"),
            conversation.resume,
        ),
        (spec(name="sessions", args="[title]", help="List conversations"), conversation.sessions),
        (
            idle(name="branch", aliases=("fork",), args="[name]", help="Go on in a copy of this"),
            conversation.branch,
        ),
        (
            idle(
                name="compress",
                aliases=("compact",),
                args="[focus]",
                help="Summarise the older part of the conversation",
            ),
            conversation.compress,
        ),
        (terminal(name="history", args="[N]", help="Show what was said"), conversation.history),
        (
            terminal(name="save", args="[file]", help="Write the conversation to a file"),
            conversation.save,
        ),
        (
            terminal(name="prompt", aliases=("compose",), help="Write in the external editor"),
            info.compose,
        ),
        (terminal(name="redraw", help="Paint the screen anew"), info.redraw),
        (
            spec(
                name="sethome",
                aliases=("set-home",),
                help="Have unasked messages sent to this chat",
                where=Where.CHAT,
                admin=True,
            ),
            sethome,
        ),
        (spec(name="status", help="Show where the conversation stands"), info.status),
    )


def _running() -> tuple[Row, ...]:
    spec = partial(CommandSpec, category=Category.RUNNING)
    return (
        (spec(name="stop", help="Stop the turn and forget what is queued"), running.stop),
        (
            spec(name="queue", aliases=("q",), args="TEXT", help="Say it after the running turn"),
            running.queue,
        ),
        (spec(name="steer", args="TEXT", help="Say it to the running turn"), running.steer),
        (
            spec(
                name="busy",
                args="[mode]",
                choices=tuple(BusyMode),
                help="What text does that is typed while it works",
            ),
            running.busy,
        ),
        (
            spec(
                name="approve",
                args="[session|always|all]",
                choices=("once", "session", "always", "all"),
                help="Allow what is asked for",
            ),
            running.approve,
        ),
        (
            spec(name="deny", args="[all] [reason]", choices=("all",), help="Refuse it"),
            running.deny,
        ),
        (spec(name="answer", args="TEXT", help="Answer the model's question"), running.answer),
    )


def _configuration() -> tuple[Row, ...]:
    spec = partial(CommandSpec, category=Category.CONFIGURATION)
    terminal = partial(spec, where=Where.TERMINAL)
    return (
        (
            spec(
                name="model",
                args="[name] [--provider P]",
                help="Show or change the model",
                admin=True,
            ),
            model.model,
        ),
        (
            spec(
                name="reasoning",
                args="[effort|show|hide]",
                choices=(*REASONING_EFFORTS, "default", "show", "hide"),
                help="How hard the model thinks",
            ),
            model.reasoning,
        ),
        (
            spec(
                name="yolo",
                args="[on|off]",
                choices=ON_OFF,
                help="Run dangerous actions without asking",
                admin=True,
            ),
            model.yolo,
        ),
        (
            spec(
                name="verbose",
                args="[level]",
                choices=tuple(ToolDetail),
                help="How much is shown of tool calls",
            ),
            model.verbose,
        ),
        (terminal(name="config", args="[part of name]", help="Show the settings"), info.config),
        (
            terminal(
                name="statusbar",
                aliases=("sb",),
                args="[on|off]",
                choices=ON_OFF,
                help="Show or hide the status bar",
            ),
            info.statusbar,
        ),
        (terminal(name="skin", args="[name]", help="Change the look"), info.skin),
    )


def _tools() -> tuple[Row, ...]:
    spec = partial(CommandSpec, category=Category.TOOLS)
    terminal = partial(spec, where=Where.TERMINAL)
    return (
        (spec(name="tools", help="List the tools the model has"), model.tools),
        (
            terminal(name="image", aliases=("paste",), args="[file]", help="Attach a picture"),
            info.image,
        ),
        (terminal(name="copy", help="Copy the last answer"), info.copy),
    )


def _info() -> tuple[Row, ...]:
    spec = partial(CommandSpec, category=Category.INFO)
    return (
        (spec(name="usage", help="Show tokens and cost"), model.usage),
        (
            spec(name="context", aliases=("prompt-size",), help="Show what fills the context"),
            model.context_use,
        ),
        (
            spec(name="whoami", aliases=("profile",), help="Show who talks to which agent"),
            info.whoami,
        ),
        (spec(name="version", aliases=("v",), help="Show the version"), info.version),
        (
            spec(name="quit", aliases=("exit",), where=Where.TERMINAL, help="Leave"),
            info.quit_door,
        ),
    )
