"""Commands about the model and its tools: model, reasoning, yolo, verbose, tools, usage."""

from functools import partial

from hermes.control.commands.context import (
    REASONING_EFFORTS,
    CommandContext,
    Preference,
    ToolDetail,
)
from hermes.control.commands.controls import ContextUse
from hermes.control.commands.registry import Category, Invocation, command
from hermes.control.commands.wording import count, heading, listing, money, table
from hermes.domain.errors import UsageError
from hermes.domain.session import Session
from hermes.domain.wording import one_line

DETAIL_WORDS = {
    ToolDetail.OFF: "Tool calls are not shown.",
    ToolDetail.NEW: "A tool call is shown when a different tool starts.",
    ToolDetail.ALL: "Every tool call is shown.",
    ToolDetail.VERBOSE: "Every tool call is shown, with its result.",
}


EFFORTS = (*REASONING_EFFORTS, "default", "show", "hide")

_configure = partial(command, Category.CONFIGURATION)
_tell = partial(command, Category.INFO)


@_configure("model", "[name] [--provider P]", "Show or change the model", admin=True)
async def model(context: CommandContext, invocation: Invocation) -> None:
    name, provider = _model_words(invocation.words)
    if name is None:
        picked = await _pick_model(context)
        if picked is None:
            return
        provider, name = picked
    session = await context.caller.ensure_session()
    changed = await context.host.controls.set_model(session, name, provider)
    await context.caller.refresh()
    await context.reply(f"Model from the next turn on: {_model_label(changed)}")


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
            raise UsageError("Only one model can be named.", hint="/model NAME [--provider P]")
    if provider is not None and name is None:
        raise UsageError("Which model of that provider?", hint="/model NAME --provider P")
    return name, provider


async def _pick_model(context: CommandContext) -> tuple[str, str] | None:
    """Return the (provider, model) a person picks of all that could answer here."""
    session, screen = context.session, context.caller.screen
    current = _model_label(session) if session else context.profile.model
    if screen is None:
        await context.reply(f"Model: {current}\n/model NAME [--provider P] changes it.")
        return None
    settings, profile = context.host.settings(), context.profile
    notes = {(profile.provider, profile.model): "configured"}
    for name, provider in settings.providers.items():
        models = provider.models if isinstance(provider.models, list | tuple | dict) else ()
        for each in (provider.model, *models):
            if each:
                notes.setdefault((name, str(each)), "")
    for fallback in settings.fallback_providers:
        if fallback.model:
            notes.setdefault((fallback.provider, fallback.model), "fallback")
    for provider_name, model_name, why in await context.host.offers():
        notes[provider_name, model_name] = notes.get((provider_name, model_name)) or why
    lines = [f"{name}  {provider}  {note}".rstrip() for (provider, name), note in notes.items()]
    chosen = await screen.pick(f"Model (now {current})", [*lines, "Another one: type its name"])
    if chosen == len(lines):
        screen.prefill("/model ")
        return None
    return None if chosen is None else list(notes)[chosen]


def _model_label(session: Session) -> str:
    return f"{session.model} ({session.provider})" if session.provider else session.model


@_configure("reasoning", "[effort|show|hide]", "Set the reasoning effort", choices=EFFORTS)
async def reasoning(context: CommandContext, invocation: Invocation) -> None:
    word = invocation.rest.lower()
    if word in ("show", "hide"):
        await context.prefer(Preference.SHOW_REASONING, word == "show")
        await context.reply("Thoughts are shown." if word == "show" else "Thoughts are hidden.")
    elif word in (*REASONING_EFFORTS, "default"):
        await context.prefer(Preference.REASONING, None if word == "default" else word)
        await context.reply(f"Reasoning effort: {word}")
    elif word:
        raise UsageError(
            f"`{word}` is not an effort.",
            hint=f"One of: {', '.join(EFFORTS)}.",
        )
    else:
        effort = await context.preference(Preference.REASONING, str)
        shown = await context.preference(Preference.SHOW_REASONING, bool)
        if shown is None:
            shown = context.host.shows_reasoning(context.caller.source, terminal=context.terminal)
        thoughts = "shown" if shown else "hidden"
        await context.reply(f"Reasoning effort: {effort or 'default'} · thoughts are {thoughts}")


@_configure(
    "yolo", "[on|off]", "Run dangerous actions without asking", admin=True, choices=("on", "off")
)
async def yolo(context: CommandContext, invocation: Invocation) -> None:
    word = invocation.rest.lower()
    if word not in ("", "on", "off"):
        raise UsageError(f"`{word}` is neither on nor off.")
    on = word == "on" if word else not await context.preference(Preference.YOLO, bool)
    if on and context.shared and not context.operator:
        raise UsageError("In a group only a named administrator can switch approvals off.")
    await context.prefer(Preference.YOLO, on)
    await context.reply(
        "YOLO: dangerous actions run without asking in this conversation. /yolo turns it off."
        if on
        else "YOLO is off: dangerous actions need approval again."
    )


@_configure("verbose", "[level]", "Choose how tool calls are shown", choices=tuple(ToolDetail))
async def verbose(context: CommandContext, invocation: Invocation) -> None:
    word, levels = invocation.rest.lower(), list(ToolDetail)
    if word and word not in levels:
        raise UsageError(f"`{word}` is not a level.", hint=f"One of: {', '.join(levels)}.")
    now = await context.preference(Preference.TOOL_DETAIL, str)
    usual = context.host.tool_detail(context.caller.source, terminal=context.terminal)
    after = levels.index(ToolDetail(now) if now in levels else usual) + 1
    level = ToolDetail(word) if word else levels[after % len(levels)]
    await context.prefer(Preference.TOOL_DETAIL, level.value)
    await context.reply(f"{DETAIL_WORDS[level]} ({level.value})")


@command(Category.TOOLS, "tools", "", "List the tools the model has")
async def tools(context: CommandContext, _invocation: Invocation) -> None:
    found = context.host.controls.tools(context.agent_id, context.session)
    if not found:
        await context.reply("The model has no tools here.")
        return
    by_set: dict[str, list[tuple[str, str]]] = {}
    for tool in found:
        about = one_line(tool.description.split("\n", 1)[0], 72)
        by_set.setdefault(tool.toolset, []).append((tool.name, about))
    terminal = context.terminal
    blocks = [
        f"{heading(name, terminal=terminal)}\n{listing(rows, terminal=terminal)}"
        for name, rows in sorted(by_set.items())
    ]
    await context.reply("\n".join([f"{count(len(found), 'tool')}:", *blocks]))


@_tell("usage", "", "Show tokens and cost")
async def usage(context: CommandContext, _invocation: Invocation) -> None:
    session = context.need_session()
    spent = await context.ledger.spent(session_id=session.id)
    use, size = session.usage, await context.host.controls.prompt_size(context.agent_id, session)
    rows = [
        ("model calls", f"{spent.calls:,}"),
        ("tokens in", f"{use.input_tokens:,} ({use.cache_read_tokens:,} from cache)"),
        ("tokens out", f"{use.output_tokens:,} ({use.reasoning_tokens:,} reasoning)"),
        ("cost", _cost(spent.cost_usd, spent.unpriced_calls, spent.calls)),
        ("context", _fill(size)),
    ]
    if (children := spent.tokens - use.total_tokens) > 0:
        cost = spent.cost_usd - session.cost_usd
        priced = f", {money(cost)}" if cost > 0 else ""
        rows.insert(3, ("child agents", f"{children:,} tokens{priced}"))
    models = await context.ledger.usage_by_model(session_id=session.id)
    if len(models) > 1:
        rows += [
            (f"  {name}", f"{count(each.calls, 'call')}, {each.tokens:,} tokens")
            for _, name, each in models
        ]
    await context.reply(table(rows, terminal=context.terminal))


def _cost(usd: float, unpriced: int, calls: int) -> str:
    if calls and unpriced == calls:
        return "unknown (the price of this model is not known)"
    missing = f", without {count(unpriced, 'call')} of unknown price" if unpriced else ""
    return f"{money(usd)}{missing}"


@_tell("context prompt-size", "", "Show what fills the context")
async def context_use(context: CommandContext, _invocation: Invocation) -> None:
    size = await context.host.controls.prompt_size(context.agent_id, context.session)
    rows = [(name, f"{tokens:>8,}") for name, tokens in size.parts.items()]
    await context.reply(f"{table(rows, terminal=context.terminal)}\n{_fill(size)}")


def _fill(size: ContextUse) -> str:
    window = f" of {size.window:,} ({size.tokens / size.window:.0%})" if size.window else ""
    return f"{size.tokens:,} tokens{window}"
