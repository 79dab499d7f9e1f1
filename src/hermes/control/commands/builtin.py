"""The commands Hermes comes with, in the order of help."""

from functools import partial
from typing import Any

from hermes.control.commands import conversation, info, model, running
from hermes.control.commands.context import REASONING_EFFORTS, ToolDetail
from hermes.control.commands.registry import (
    Category,
    CommandRegistry,
    Handler,
    SlashCommand,
    Where,
)
from hermes.control.lanes.gateway import BusyMode

ON_OFF = ("on", "off")
EFFORTS = (*REASONING_EFFORTS, "default", "show", "hide")
SCOPES = ("once", "session", "always", "all")


def builtin_registry(extra: tuple[SlashCommand, ...] = ()) -> CommandRegistry:
    """Build the registry, with commands of plugins or skills after the built-in ones."""
    registry = CommandRegistry()
    listing, pages = partial(info.help_command, registry), partial(info.commands, registry)
    tell, chat = _rows(Category.INFO), _rows(Category.INFO, where=Where.CHAT)
    helpers = (
        tell("help h", "[command]", "List or explain commands", listing),
        chat("commands", "[page]", "List commands in pages", pages),
    )
    rows = (*_session(), *_running(), *_configuration(), *_tools(), *helpers, *_info())
    for command in (*rows, *extra):
        registry.add(command)
    return registry


def _row(names: str, args: str, about: str, run: Handler, **rest: Any) -> SlashCommand:
    """Make a command from its name and aliases, what may follow, one sentence and its code."""
    name, *aliases = names.split()
    return SlashCommand(name=name, aliases=tuple(aliases), args=args, help=about, run=run, **rest)


def _rows(category: Category, **common: Any) -> "partial[SlashCommand]":
    return partial(_row, category=category, **common)


def _session() -> tuple[SlashCommand, ...]:
    talk = _rows(Category.SESSION)
    idle = _rows(Category.SESSION, needs_idle=True)
    screen = _rows(Category.SESSION, where=Where.TERMINAL)
    admin = _rows(Category.SESSION, where=Where.CHAT, admin=True)
    return (
        idle("new reset", "[title]", "Begin a new conversation", conversation.new),
        screen("clear", "", "Clear the screen and start over", conversation.clear, needs_idle=True),
        idle("retry", "", "Ask the last message again", conversation.retry),
        idle("undo", "[N]", "Take back the last exchanges", conversation.undo),
        talk("title", "[name]", "Show or set the title", conversation.title),
        idle("resume", "[id|title]", "Go on with an earlier conversation", conversation.resume),
        talk("sessions", "[title]", "List conversations", conversation.sessions),
        idle("branch fork", "[name]", "Continue in a copy of this", conversation.branch),
        idle("compress compact", "[focus]", "Summarise older messages", conversation.compress),
        screen("history", "[N]", "Show what was said", conversation.history),
        screen("save", "[file]", "Write the conversation to a file", conversation.save),
        screen("prompt compose", "", "Write in the external editor", info.compose),
        screen("redraw", "", "Redraw the screen", info.redraw),
        admin("sethome set-home", "", "Send unasked messages to this chat", conversation.sethome),
        talk("status", "", "Show the state of the conversation", info.status),
    )


def _running() -> tuple[SlashCommand, ...]:
    row = _rows(Category.RUNNING)
    modes = tuple(BusyMode)
    return (
        row("stop", "", "Stop the turn and forget what is queued", running.stop),
        row("queue q", "TEXT", "Say it after the running turn", running.queue),
        row("steer", "TEXT", "Say it to the running turn", running.steer),
        row("busy", "[mode]", "What typing does during a turn", running.busy, choices=modes),
        row(
            "approve",
            "[session|always|all]",
            "Allow what is asked for",
            running.approve,
            choices=SCOPES,
        ),
        row("deny", "[all] [reason]", "Refuse it", running.deny, choices=("all",)),
        row("answer", "TEXT", "Answer the model's question", running.answer),
    )


def _configuration() -> tuple[SlashCommand, ...]:
    row = _rows(Category.CONFIGURATION)
    admin = _rows(Category.CONFIGURATION, admin=True)
    screen = _rows(Category.CONFIGURATION, where=Where.TERMINAL)
    effort, detail = "How hard the model thinks", "How much is shown of tool calls"
    danger = "Run dangerous actions without asking"
    return (
        admin("model", "[name] [--provider P]", "Show or change the model", model.model),
        row("reasoning", "[effort|show|hide]", effort, model.reasoning, choices=EFFORTS),
        admin("yolo", "[on|off]", danger, model.yolo, choices=ON_OFF),
        row("verbose", "[level]", detail, model.verbose, choices=tuple(ToolDetail)),
        screen("config", "[part of name]", "Show the settings", info.config),
        screen(
            "statusbar sb",
            "[on|off]",
            "Show or hide the status bar",
            info.statusbar,
            choices=ON_OFF,
        ),
        screen("skin", "[name]", "Change the look", info.skin),
    )


def _tools() -> tuple[SlashCommand, ...]:
    screen = _rows(Category.TOOLS, where=Where.TERMINAL)
    return (
        _rows(Category.TOOLS)("tools", "", "List the tools the model has", model.tools),
        screen("image paste", "[file]", "Attach a picture", info.image),
        screen("copy", "", "Copy the last answer", info.copy),
    )


def _info() -> tuple[SlashCommand, ...]:
    row = _rows(Category.INFO)
    return (
        row("usage", "", "Show tokens and cost", model.usage),
        row("context prompt-size", "", "Show what fills the context", model.context_use),
        row("whoami profile", "", "Show who talks to which agent", info.whoami),
        row("version v", "", "Show the version", info.version),
        row("quit exit", "", "Leave", info.quit_door, where=Where.TERMINAL),
    )
