"""`hermes doctor`: everything that is wrong or doubtful in one list, each with what to do."""

import time
from collections.abc import Iterator

import click

from hermes.app.agents import model_problems
from hermes.app.doubts import config_doubts, key_doubts
from hermes.app.settings import backend_warnings
from hermes.cli.commands.config import idle_keys, unusable
from hermes.cli.commands.gateway import GatewayReport, gateway_report
from hermes.cli.home import HomeLedger, app_options, json_option, this_home, with_ledger
from hermes.config.environment import process_environ
from hermes.config.loader import inspect_config
from hermes.control.commands.wording import count
from hermes.domain.keys import ApiKey


@click.command("doctor")
@json_option
@with_ledger
async def command(store: HomeLedger, as_json: bool) -> None:
    """List everything that is wrong or doubtful: configuration, agents, routes, hooks, gateway.

    Nothing is changed. The exit code is 1 if anything is wrong.
    """
    found = list(_findings(await store.ledger.keys(), gateway_report(this_home(), time.time())))
    wrong = [text for serious, text in found if serious]
    if as_json:
        doubts = [text for serious, text in found if not serious]
        store.say_json({"errors": wrong, "warnings": doubts})
    for serious, text in () if as_json else found:
        store.say(f"{'✗' if serious else '!'} {text}")
    if not found and not as_json:
        store.say("Nothing is wrong.")
    elif not as_json:
        store.say(f"{count(len(wrong), 'error')}, {count(len(found) - len(wrong), 'warning')}.")
    click.get_current_context().exit(1 if wrong else 0)


def _findings(keys: list[ApiKey], gateway: GatewayReport) -> Iterator[tuple[bool, str]]:
    """Yield what was found, and whether something does not work because of it."""
    home = this_home()
    loaded = inspect_config(home, process_environ())
    errors = [*map(str, loaded.errors)] or [*unusable(loaded)]
    yield from ((True, text) for text in errors)
    if not loaded.errors:
        for agent, why in model_problems(loaded, home).items():
            yield True, f"The agent {agent} cannot answer: {why}"
        yield from ((True, text) for text in config_doubts(loaded, home))
        if not loaded.config.model.model:
            yield False, "No model is chosen. Choose one with: hermes setup"
        doubts = [*key_doubts(loaded.config, keys, time.time()), *loaded.warnings, *loaded.unused]
        doubts += [*idle_keys(loaded), *backend_warnings(loaded, app_options(platform="gateway"))]
        yield from ((False, text) for text in doubts)
    state = gateway.state if gateway.running else None
    for name, platform in sorted(state.platforms.items()) if state else ():
        if platform.error_message:
            yield True, f"{name}: {platform.error_message} {platform.hint or ''}".strip()
    yield from ((True, text) for text in (state.warnings if state else ()))
