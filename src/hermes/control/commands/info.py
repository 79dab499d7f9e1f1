"""Commands that tell something, and those of the screen: help, status, skin, quit."""

from functools import partial

from hermes.control.admission.routing import named
from hermes.control.commands.context import CommandContext
from hermes.control.commands.registry import (
    Category,
    CommandRegistry,
    Invocation,
    SlashCommand,
    Where,
    command,
)
from hermes.control.commands.wording import count, exchanges, heading, listing, table
from hermes.domain.errors import UsageError
from hermes.domain.ports.clock import clock_time

PAGE = 12
ABOUT = (
    "I'm Hermes, an AI agent.\n"
    "Write to me as you would to a person: I answer questions, work on files, run commands and "
    "look after longer tasks. Before anything risky I ask you.\n"
    "/help lists the commands, /new starts over, /stop stops me."
)
"""Who answers here, for somebody new."""


_tell = partial(command, Category.INFO)
_screen = partial(command, where=Where.TERMINAL)


def listings(registry: CommandRegistry) -> tuple[SlashCommand, SlashCommand]:
    @_tell("help h", "[command]", "List or explain commands")
    async def help_command(context: CommandContext, invocation: Invocation) -> None:
        terminal = context.terminal
        if invocation.rest:
            name = invocation.words[0].lstrip("/").lower()
            await context.reply(_about(registry.resolve(name, terminal=terminal)))
            return
        blocks: dict[str, list[tuple[str, str]]] = {}
        for each in registry.commands(terminal=terminal):
            blocks.setdefault(each.category, []).append((each.usage, each.help))
        lines = [
            f"{heading(category, terminal=terminal)}\n{listing(rows, terminal=terminal)}"
            for category, rows in blocks.items()
        ]
        lines.append("/help COMMAND tells more about one. //text sends text that begins with /.")
        await context.reply("\n".join(lines))

    @_tell("commands", "[page]", "List commands in pages", where=Where.CHAT)
    async def pages(context: CommandContext, invocation: Invocation) -> None:
        found = registry.commands(terminal=context.terminal)
        last, word = -(-len(found) // PAGE), invocation.rest or "1"
        if not word.isdecimal() or not 1 <= int(word) <= last:
            raise UsageError(f"There is no page `{word}`.", hint=f"Pages 1 to {last}.")
        start = (int(word) - 1) * PAGE
        rows = [(each.usage, each.help) for each in found[start : start + PAGE]]
        await context.reply(f"{listing(rows, terminal=False)}\nPage {word} of {last}.")

    return help_command, pages


def _about(command: SlashCommand) -> str:
    lines = [command.usage, f"  {command.help}."]
    if command.aliases:
        lines.append(f"  Also: {', '.join(f'/{alias}' for alias in command.aliases)}")
    if command.choices:
        lines.append(f"  Choices: {', '.join(command.choices)}")
    if command.needs_idle:
        lines.append("  Not while a turn is running.")
    return "\n".join(lines)


@command(Category.SESSION, "start", "", "Say hello", where=Where.CHAT)
async def start(context: CommandContext, _invocation: Invocation) -> None:
    await context.reply(f"Hello! {ABOUT}")


@command(Category.SESSION, "status", "", "Show the state of the conversation")
async def status(context: CommandContext, _invocation: Invocation) -> None:
    host, session = context.host, context.session
    session_id = session.id if session else None
    mode = await host.busy_mode(context.caller.source, session_id)
    if session is None:
        rows = [("session", "none yet"), ("model", context.profile.model)]
    else:
        waiting = await context.ledger.waiting(session.id)
        pending = await context.ledger.pending_approvals(session.id)
        rows = [
            ("session", session.id),
            ("title", session.title or "none"),
            ("model", f"{session.model} {session.provider}".strip()),
            *([("directory", session.cwd)] if context.terminal and session.cwd else []),
            ("started", clock_time(session.started_at, host.settings().timezone)),
            ("messages", f"{session.message_count:,}"),
            ("tokens", f"{session.usage.total_tokens:,}"),
            ("working", "yes" if context.busy else "no"),
            ("queued", count(len(waiting), "message")),
            ("to approve", str(len(pending))),
        ]
    rows += [("agent", context.agent_id), ("busy mode", mode.value)]
    await context.reply(table(rows, terminal=context.terminal))


@_tell("reload-mcp", "", "Connect to the MCP servers again", admin=True)
async def reload_mcp(context: CommandContext, _invocation: Invocation) -> None:
    rows = [
        (name, trouble or count(tools, "tool"))
        for name, tools, trouble in await context.host.reload_mcp()
    ]
    nothing = "No MCP server is configured. Add one with: hermes mcp add"
    await context.reply(table(rows, terminal=context.terminal) if rows else nothing)


@_tell("whoami profile", "", "Show your user, your rights and the agent")
async def whoami(context: CommandContext, _invocation: Invocation) -> None:
    profile = context.profile
    rights = "administrator" if context.operator else "all commands" if context.admin else "user"
    rows = [
        ("you", f"{context.caller.user_id} ({context.caller.source})"),
        ("agent", profile.id),
        ("rights", rights),
    ]
    if context.operator and context.shared:
        rows.append(("more", "ask me in private"))
    elif context.operator:
        rows += [
            ("home", str(profile.home)),
            ("workspace", str(profile.workspace)),
            ("backend", profile.backend),
        ]
    await context.reply(table(rows, terminal=context.terminal))


@_tell("agent", "[id]", "Show the agent; at the terminal also talk to another")
async def agent(context: CommandContext, invocation: Invocation) -> None:
    own = context.profile
    if not context.terminal:
        about = f": {own.description}" if own.description else "."
        await context.reply(f"You talk to the agent `{own.id}`{about}")
    elif invocation.rest:
        if context.busy:
            raise UsageError("The agent is still working.", hint="Wait for it, or /stop.")
        chosen = context.host.gateway.profile(named(invocation.words[0]))
        await context.screen.use_agent(chosen)
        await context.reply(f"You talk to the agent `{chosen.id}` in a new conversation.")
    else:
        rows = [
            (f"{'*' if each.id == own.id else ' '} {each.id}", each.description or each.model)
            for each in context.host.gateway.profiles.values()
        ]
        await context.reply(listing(rows, terminal=True))


@_tell("version v", "", "Show the version")
async def version(context: CommandContext, _invocation: Invocation) -> None:
    await context.reply(f"Hermes {context.host.version}")


@_screen(Category.CONFIGURATION, "config", "[part of name]", "Show the settings")
async def config(context: CommandContext, invocation: Invocation) -> None:
    settings, profile = context.host.settings(), context.profile
    rows = [
        ("home", str(profile.home)),
        ("model", profile.model),
        ("provider", profile.provider or "auto"),
        ("toolsets", ", ".join(profile.toolsets)),
        ("backend", profile.backend),
        ("workspace", str(profile.workspace)),
        ("approvals", settings.approvals.mode),
        ("busy input", settings.display.busy_input_mode),
    ]
    wanted = invocation.rest.lower()
    rows = [row for row in rows if wanted in row[0]]
    await context.reply(table(rows) if rows else f"There is no setting `{wanted}` to show.")


@_screen(Category.TOOLS, "copy", "", "Copy the last answer")
async def copy(context: CommandContext, _invocation: Invocation) -> None:
    session = context.need_session()
    answers = [
        each.answer for each in exchanges(await context.ledger.history(session.id)) if each.answer
    ]
    if not answers:
        raise UsageError("There is no answer to copy yet.")
    context.screen.copy(answers[-1])
    await context.reply(f"Copied {len(answers[-1]):,} characters.")


@_screen(Category.TOOLS, "image paste", "[file]", "Attach a picture")
async def image(context: CommandContext, invocation: Invocation) -> None:
    await context.reply(await context.screen.attach_image(invocation.rest or None))


@_screen(Category.SESSION, "prompt compose", "", "Write in the external editor")
async def compose(context: CommandContext, invocation: Invocation) -> None:
    await context.screen.compose(invocation.rest)


@_screen(Category.SESSION, "redraw", "", "Redraw the screen")
async def redraw(context: CommandContext, _invocation: Invocation) -> None:
    context.screen.clear()


@_screen(
    Category.CONFIGURATION,
    "statusbar sb",
    "[on|off]",
    "Show or hide the status bar",
    choices=("on", "off"),
)
async def statusbar(context: CommandContext, invocation: Invocation) -> None:
    word = invocation.rest.lower()
    if word not in ("", "on", "off"):
        raise UsageError(f"`{word}` is neither on nor off.")
    shown = context.screen.set_status_bar(shown=None if not word else word == "on")
    await context.reply(f"The status bar is {'shown' if shown else 'hidden'}.")


@_screen(Category.CONFIGURATION, "skin", "[name]", "Change the look")
async def skin(context: CommandContext, invocation: Invocation) -> None:
    screen, name = context.screen, invocation.rest
    if not name:
        names = list(screen.skins())
        chosen = await screen.pick("Which skin?", names)
        if chosen is None:
            return
        name = names[chosen]
    screen.set_skin(name)
    await context.reply(f"Skin: {name}")


@_screen(Category.INFO, "quit exit", "", "Leave the chat")
async def quit_door(context: CommandContext, _invocation: Invocation) -> None:
    context.screen.leave()
