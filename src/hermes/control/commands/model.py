"""Commands about the model and its tools: model, reasoning, yolo, verbose, tools, usage."""

from hermes.control.commands.context import (
    REASONING_EFFORTS,
    CommandContext,
    ModelOption,
    SessionChoice,
    ToolDetail,
    recalled_flag,
    recalled_word,
)
from hermes.control.commands.registry import Invocation
from hermes.control.commands.wording import count, money, one_line, table
from hermes.domain.errors import UsageError
from hermes.domain.session import Session

DETAIL_WORDS = {
    ToolDetail.OFF: "Tool calls are not shown.",
    ToolDetail.NEW: "A tool call is shown when another tool begins.",
    ToolDetail.ALL: "Every tool call is shown.",
    ToolDetail.VERBOSE: "Every tool call is shown, with what it gave back.",
}


async def model(context: CommandContext, invocation: Invocation) -> None:
    name, provider = _model_words(invocation.words)
    if name is None:
        picked = await _pick_model(context)
        if picked is None:
            return
        name, provider = picked.model, picked.provider
    session = await context.caller.ensure_session()
    changed = await context.host.controls.set_model(session, name, provider)
    await context.caller.refresh()
    await context.reply(f"The next turn is answered by {_model_label(changed)}.")


def _model_words(words: tuple[str, ...]) -> tuple[str | None, str | None]:
    name: str | None = None
    provider: str | None = None
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--provider":
            if not rest:
                raise UsageError(
                    "--provider needs a name.", hint="For example: --provider openrouter"
                )
            provider = rest.pop(0)
        elif word.startswith("--provider="):
            provider = word.partition("=")[2]
        elif word.startswith("--"):
            raise UsageError(f"/model does not know {word}.", hint="/model NAME [--provider P]")
        elif name is None:
            name = word
        else:
            raise UsageError("One model at a time.", hint="/model NAME [--provider P]")
    if provider is not None and name is None:
        raise UsageError("Which model of that provider?", hint="/model NAME --provider P")
    return name, provider


async def _pick_model(context: CommandContext) -> ModelOption | None:
    session = context.session
    current = _model_label(session) if session else context.profile.model
    options = (
        await context.host.controls.models(session or await context.caller.ensure_session())
        if context.caller.screen is not None
        else []
    )
    if not options or context.caller.screen is None:
        await context.reply(f"Model: {current}\n/model NAME [--provider P] changes it.")
        return None
    lines = [f"{each.model}  {each.provider}  {each.note}".rstrip() for each in options]
    chosen = await context.caller.screen.pick(f"Model (now {current})", lines)
    return None if chosen is None else options[chosen]


def _model_label(session: Session) -> str:
    return f"{session.model} ({session.provider})" if session.provider else session.model


async def reasoning(context: CommandContext, invocation: Invocation) -> None:
    word, ledger = invocation.rest.lower(), context.ledger
    if word in ("show", "hide"):
        session = await context.caller.ensure_session()
        await ledger.remember(session.id, SessionChoice.SHOW_REASONING.value, word == "show")
        await context.caller.refresh()
        await context.reply("Thoughts are shown." if word == "show" else "Thoughts are hidden.")
        return
    if word and word not in (*REASONING_EFFORTS, "default"):
        raise UsageError(
            f"`{word}` is not an effort.",
            hint=f"One of: {', '.join(REASONING_EFFORTS)}, default, show, hide.",
        )
    if word:
        session = await context.caller.ensure_session()
        effort = None if word == "default" else word
        await context.host.controls.set_reasoning(session, effort)
        await ledger.remember(session.id, SessionChoice.REASONING.value, effort)
        await context.caller.refresh()
        await context.reply(f"Reasoning effort: {word}")
        return
    session_id = context.session.id if context.session else None
    effort = await recalled_word(ledger, session_id, SessionChoice.REASONING)
    shown = await recalled_flag(ledger, session_id, SessionChoice.SHOW_REASONING)
    if shown is None:
        shown = context.host.settings().display.show_reasoning
    await context.reply(
        f"Reasoning effort: {effort or 'default'} · thoughts are {'shown' if shown else 'hidden'}"
    )


async def yolo(context: CommandContext, invocation: Invocation) -> None:
    session = await context.caller.ensure_session()
    now = await recalled_flag(context.ledger, session.id, SessionChoice.YOLO) or False
    on = _switch(invocation.rest, now=now)
    await context.host.controls.set_yolo(session, on=on)
    await context.ledger.remember(session.id, SessionChoice.YOLO.value, on)
    await context.caller.refresh()
    await context.reply(
        "YOLO: dangerous actions run without asking in this conversation. /yolo turns it off."
        if on
        else "Dangerous actions are asked about again."
    )


def _switch(word: str, *, now: bool) -> bool:
    match word.lower():
        case "":
            return not now
        case "on":
            return True
        case "off":
            return False
    raise UsageError(f"`{word}` is neither on nor off.")


async def verbose(context: CommandContext, invocation: Invocation) -> None:
    word = invocation.rest.lower()
    if word and word not in set(ToolDetail):
        raise UsageError(f"`{word}` is not a level.", hint=f"One of: {', '.join(ToolDetail)}.")
    session = await context.caller.ensure_session()
    now = await recalled_word(context.ledger, session.id, SessionChoice.TOOL_DETAIL)
    levels = list(ToolDetail)
    before = levels.index(ToolDetail(now)) if now in set(ToolDetail) else 2
    level = ToolDetail(word) if word else levels[(before + 1) % len(levels)]
    await context.ledger.remember(session.id, SessionChoice.TOOL_DETAIL.value, level.value)
    await context.caller.refresh()
    await context.reply(f"{DETAIL_WORDS[level]} ({level.value})")


async def tools(context: CommandContext, _invocation: Invocation) -> None:
    found = await context.host.controls.list_tools(context.agent_id, context.session)
    if not found:
        await context.reply("The model has no tools here.")
        return
    by_set: dict[str, list[tuple[str, str]]] = {}
    for tool in found:
        about = one_line(tool.description.split("\n", 1)[0], 72)
        by_set.setdefault(tool.toolset, []).append((f"  {tool.name}", about))
    blocks = [f"{name}\n{table(rows)}" for name, rows in sorted(by_set.items())]
    await context.reply("\n".join([f"{count(len(found), 'tool')}:", *blocks]))


async def usage(context: CommandContext, _invocation: Invocation) -> None:
    session = context.need_session()
    spent = await context.ledger.spent(session_id=session.id)
    use, size = session.usage, await context.host.controls.prompt_size(context.agent_id, session)
    window = f" of {size.window:,} ({size.tokens / size.window:.0%})" if size.window else ""
    rows = [
        ("model calls", f"{spent.calls:,}"),
        ("tokens in", f"{use.input_tokens:,} ({use.cache_read_tokens:,} from cache)"),
        ("tokens out", f"{use.output_tokens:,} ({use.reasoning_tokens:,} reasoning)"),
        ("cost", _cost(spent.cost_usd, spent.unpriced_calls, spent.calls)),
        ("context", f"{size.tokens:,} tokens{window}"),
    ]
    models = await context.ledger.usage_by_model(session_id=session.id)
    if len(models) > 1:
        rows += [
            (f"  {name}", f"{count(each.calls, 'call')}, {each.tokens:,} tokens")
            for _, name, each in models
        ]
    await context.reply(table(rows))


def _cost(usd: float, unpriced: int, calls: int) -> str:
    if calls and unpriced == calls:
        return "unknown (the price of this model is not known)"
    missing = f", without {count(unpriced, 'call')} of unknown price" if unpriced else ""
    return f"{money(usd)}{missing}"


async def context_use(context: CommandContext, _invocation: Invocation) -> None:
    size = await context.host.controls.prompt_size(context.agent_id, context.session)
    rows = [(part.name, f"{part.tokens:>8,}") for part in size.parts]
    window = f" of {size.window:,} ({size.tokens / size.window:.0%})" if size.window else ""
    await context.reply("\n".join([table(rows), f"{size.tokens:,} tokens{window}"]).lstrip("\n"))
