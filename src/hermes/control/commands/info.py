"""Commands that tell something, and those of the screen: help, status, skin, quit."""

from hermes.control.commands.context import CommandContext
from hermes.control.commands.registry import CommandRegistry, Invocation, SlashCommand
from hermes.control.commands.wording import clock_time, count, exchanges, table
from hermes.domain.errors import UsageError

PAGE = 12


async def help_command(
    registry: CommandRegistry, context: CommandContext, invocation: Invocation
) -> None:
    terminal = context.caller.screen is not None
    if invocation.rest:
        name = invocation.words[0].lstrip("/").lower()
        await context.reply(_about(registry.resolve(name, terminal=terminal)))
        return
    blocks: dict[str, list[tuple[str, str]]] = {}
    for command in registry.commands(terminal=terminal):
        blocks.setdefault(command.category, []).append((f"  {command.usage}", command.help))
    lines = [f"{category}\n{table(rows)}" for category, rows in blocks.items()]
    lines.append("/help COMMAND tells more about one. //text sends text that begins with /.")
    await context.reply("\n".join(lines))


async def commands(
    registry: CommandRegistry, context: CommandContext, invocation: Invocation
) -> None:
    found = registry.commands(terminal=context.caller.screen is not None)
    pages = -(-len(found) // PAGE)
    word = invocation.rest or "1"
    if not word.isdecimal() or not 1 <= int(word) <= pages:
        raise UsageError(f"There is no page `{word}`.", hint=f"Pages 1 to {pages}.")
    start = (int(word) - 1) * PAGE
    rows = [(command.usage, command.help) for command in found[start : start + PAGE]]
    await context.reply(f"{table(rows)}\nPage {word} of {pages}.")


def _about(command: SlashCommand) -> str:
    lines = [command.usage, f"  {command.help}."]
    if command.aliases:
        lines.append(f"  Also: {', '.join(f'/{alias}' for alias in command.aliases)}")
    if command.choices:
        lines.append(f"  Choices: {', '.join(command.choices)}")
    if command.needs_idle:
        lines.append("  Not while a turn is running.")
    return "\n".join(lines)


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
            ("started", clock_time(session.started_at)),
            ("messages", f"{session.message_count:,}"),
            ("tokens", f"{session.usage.total_tokens:,}"),
            ("working", "yes" if context.busy else "no"),
            ("queued", count(len(waiting), "message")),
            ("to approve", str(len(pending))),
        ]
    rows += [("agent", context.agent_id), ("busy mode", mode.value)]
    await context.reply(table(rows))


async def whoami(context: CommandContext, _invocation: Invocation) -> None:
    profile = context.profile
    await context.reply(
        table(
            [
                ("you", f"{context.caller.user_id} ({context.caller.source})"),
                ("agent", profile.id),
                ("home", str(profile.home)),
                ("workspace", str(profile.workspace)),
                ("backend", profile.backend),
                ("rights", "administrator" if context.admin else "user"),
            ]
        )
    )


async def version(context: CommandContext, _invocation: Invocation) -> None:
    await context.reply(f"Hermes {context.host.version}")


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


async def copy(context: CommandContext, _invocation: Invocation) -> None:
    session = context.need_session()
    answers = [
        each.answer for each in exchanges(await context.ledger.history(session.id)) if each.answer
    ]
    if not answers:
        raise UsageError("There is no answer to copy yet.")
    context.screen.copy(answers[-1])
    await context.reply(f"Copied {len(answers[-1]):,} characters.")


async def image(context: CommandContext, invocation: Invocation) -> None:
    await context.reply(await context.screen.attach_image(invocation.rest or None))


async def compose(context: CommandContext, invocation: Invocation) -> None:
    await context.screen.compose(invocation.rest)


async def redraw(context: CommandContext, _invocation: Invocation) -> None:
    context.screen.clear()


async def statusbar(context: CommandContext, invocation: Invocation) -> None:
    word = invocation.rest.lower()
    if word not in ("", "on", "off"):
        raise UsageError(f"`{word}` is neither on nor off.")
    shown = context.screen.set_status_bar(shown=None if not word else word == "on")
    await context.reply(f"The status bar is {'shown' if shown else 'hidden'}.")


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


async def quit_door(context: CommandContext, _invocation: Invocation) -> None:
    context.screen.leave()
