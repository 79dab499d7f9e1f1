"""`hermes setup`: the few questions that matter, or none at all.

The only thing Hermes cannot guess is which model answers. In a terminal the
person picks one; in scripts options decide. Running it again changes nothing
unless something else is chosen.
"""

import asyncio
from typing import Final

import click

from hermes.cli.commands.model import (
    fetch_with_progress,
    model_sources,
    pick_offer,
    provider_of,
    warn_of_missing_key,
    write_choice,
)
from hermes.cli.home import loaded_config, this_home
from hermes.cli.widgets import is_interactive, pick
from hermes.config.edit import set_value
from hermes.config.paths import HermesHome
from hermes.domain.errors import ConfigError, UsageError
from hermes.models.local.files import EMBEDDED, PROVIDER, TOY_NOTICE
from hermes.models.offers import ask_server, suggested_models
from hermes.models.providers import PROVIDERS, canonical_name
from hermes.models.routes import ModelTarget, resolve_route

_ANOTHER: Final = "Another provider: enter a key"
_OWN: Final = "A server of your own: enter its address"
_OWN_KEY: Final = "CUSTOM_API_KEY"


@click.command("setup")
@click.option("--non-interactive", is_flag=True, help="Ask nothing.")
@click.option("--local", is_flag=True, help="Use the embedded model; downloads it (98 MB).")
@click.option("--provider", default="", help="Who serves the model.")
@click.option("--model", default="", help="The model's name there.")
@click.option("--key-env", default="", help="The variable that holds the provider's key.")
@click.option("--base-url", default="", help="The server's address, if not the usual one.")
def command(
    non_interactive: bool, local: bool, provider: str, model: str, key_env: str, base_url: str
) -> None:
    """Choose the model that answers; then everything is ready."""
    home = this_home()
    if local and (provider or model or key_env or base_url):
        raise UsageError("--local goes without --provider, --model, --key-env and --base-url.")
    if provider or model or base_url:
        _chosen(home, provider or ("custom" if base_url else ""), model, key_env, base_url)
    elif local:
        _embedded(home)
    elif not non_interactive and is_interactive():
        ask(home)
    else:
        _without_questions(home)


def _without_questions(home: HermesHome) -> None:
    """Keep what is chosen; otherwise use the embedded model."""
    chosen = loaded_config(home).config.model
    if chosen.model and not (chosen.provider == PROVIDER and chosen.model == EMBEDDED):
        click.echo(f"{chosen.model} is already chosen; nothing changed.")
        return
    _embedded(home)


def _embedded(home: HermesHome) -> None:
    fetch_with_progress(home)
    _finish(home, PROVIDER, EMBEDDED, "")
    click.echo(TOY_NOTICE)


def _chosen(home: HermesHome, provider: str, model: str, key_env: str, base_url: str) -> None:
    loaded = loaded_config(home)
    name = canonical_name(provider) if provider not in loaded.config.providers else provider
    if not model:
        known = ", ".join(suggested_models(name))
        raise UsageError(
            "Which model? Its name is missing.",
            hint=f"Add --model NAME{f' (known: {known})' if known else ''}.",
        )
    if key_env:
        key = loaded.variable(key_env)
        if not key:
            raise UsageError(
                f"{key_env} is not set.",
                hint=f"Export it first, or: hermes config set {key_env} KEY",
            )
        set_value(home, key_env, key)
        spec = PROVIDERS.get(name)
        if spec is None or key_env not in spec.key_env:
            set_value(home, f'providers."{name}".key_env', key_env)
    name = provider_of(loaded_config(home), home, model, name)
    _finish(home, name, model, base_url)
    if base_url:
        _test_server(home, ModelTarget(model=model, provider=name, base_url=base_url))


def ask(home: HermesHome) -> None:
    click.echo("Looking for models on this machine ...")
    picked = pick_offer("Which model should answer?", _ANOTHER, _OWN)
    if picked is None:
        click.echo("Nothing changed. Run `hermes setup` again whenever you like.")
    elif picked.why == _ANOTHER:
        _ask_for_key(home)
    elif picked.why == _OWN:
        _ask_for_address(home)
    elif picked.provider == PROVIDER and picked.model == EMBEDDED:
        _embedded(home)
    else:
        _finish(home, picked.provider, picked.model, picked.base_url)


def _ask_for_key(home: HermesHome) -> None:
    hosted = [spec for spec in PROVIDERS.values() if not spec.local and spec.key_env]
    at = pick("Whose key do you have?", [spec.name for spec in hosted])
    if at is None:
        click.echo("Nothing changed.")
        return
    spec = hosted[at]
    if spec.key_url:
        click.echo(f"Get a key at {spec.key_url}")
    key = click.prompt(f"{spec.key_env[0]} (not shown)", hide_input=True).strip()
    names = suggested_models(spec.name)
    picked = pick("Which model?", [*names, "Another one"]) if names else len(names)
    if picked is None:
        click.echo("Nothing changed.")
        return
    model = names[picked] if picked < len(names) else click.prompt("Name of the model").strip()
    set_value(home, spec.key_env[0], key)
    _finish(home, spec.name, model, "")


def _ask_for_address(home: HermesHome) -> None:
    """Ask for the address of a server until one answers, then for one of its models."""
    key = ""
    while True:
        address = click.prompt("Address, such as http://127.0.0.1:8000/v1").strip()
        address = address if "://" in address else f"http://{address}"
        found = asyncio.run(ask_server(address))
        if found.needs_key:
            key = click.prompt(f"{found.base_url} needs a key (not shown)", hide_input=True).strip()
            found = asyncio.run(ask_server(found.base_url, key))
        if not found.trouble:
            break
        click.echo(f"{found.base_url}: {found.trouble}.")
        if not click.confirm("Enter another address?", default=True):
            click.echo("Nothing changed.")
            return
    click.echo(f"{found.base_url} answers.")
    at = pick("Which model?", [*found.models, "Another one"])
    if at is None:
        click.echo("Nothing changed.")
        return
    asked = at == len(found.models)
    model = click.prompt("Name of the model").strip() if asked else found.models[at]
    if key:
        set_value(home, _OWN_KEY, key)
        set_value(home, "providers.custom.key_env", _OWN_KEY)
    _finish(home, "custom", model, found.base_url)


def _test_server(home: HermesHome, target: ModelTarget) -> None:
    """Say what keeps a server from answering: nobody there, a wrong path or a missing model."""
    model, base_url = target.model, target.base_url
    try:
        route = resolve_route(target, model_sources(loaded_config(home)))
    except ConfigError:
        return  # has been said
    found = asyncio.run(ask_server(base_url, route.keys[0].secret if route.keys else ""))
    if found.trouble:
        click.echo(f"Note: {base_url}: {found.trouble}.", err=True)
    elif found.base_url != base_url.rstrip("/"):
        click.echo(f"Note: the API is at {found.base_url}, not at {base_url}.", err=True)
    elif model not in found.models:
        has = ", ".join(found.models[:10])
        click.echo(f"Note: {base_url} answers but has no model `{model}`; it has: {has}", err=True)


def _finish(home: HermesHome, provider: str, model: str, base_url: str) -> None:
    changed = write_choice(home, provider, model, base_url)
    what = "answers from now on" if changed else "was already chosen"
    asked = click.get_current_context().info_name == "setup"
    click.echo(f"{model} ({provider}) {what}.{' Start talking with: hermes' * asked}")
    warn_of_missing_key(home, provider, model, base_url)
