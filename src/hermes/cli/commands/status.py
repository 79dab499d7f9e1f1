"""`hermes status`: everything at a glance, without changing anything."""

import time
from collections.abc import Iterator

import click
import msgspec

from hermes import __version__
from hermes.app.agents import model_problems
from hermes.app.doubts import config_doubts, key_doubts
from hermes.app.settings import ON_THIS_COMPUTER
from hermes.cli.commands.gateway import (
    gateway_facts,
    gateway_lines,
    gateway_report,
    outbox_lines,
)
from hermes.cli.home import HomeLedger, json_option, this_home, with_ledger
from hermes.config.environment import process_environ
from hermes.config.loader import LoadedConfig, inspect_config
from hermes.config.paths import HermesHome
from hermes.control.commands.wording import count
from hermes.control.supervision.health import outbox_facts, undelivered
from hermes.domain.ports.ledger import LedgerStats
from hermes.domain.profile import DEFAULT_AGENT
from hermes.domain.settings import Settings


@click.command("status")
@json_option
@with_ledger
async def command(store: HomeLedger, as_json: bool) -> None:
    """Show the model, the configuration, the gateway and the size of the ledger."""
    home, now = this_home(), time.time()
    loaded = inspect_config(home, process_environ())
    report = gateway_report(home, now)
    stats = await store.ledger.stats()
    pieces = await undelivered(store.ledger, now)
    if as_json:
        store.say_json(
            {
                "version": __version__,
                "home": str(home.root),
                "config": _config_facts(loaded),
                "agents": _agents(home, loaded),
                "doubts": await _doubts(store, loaded, now),
                "gateway": gateway_facts(report),
                "ledger": msgspec.to_builtins(stats),
                "outbox": outbox_facts(pieces, now),
            }
        )
        return
    for line in (
        *_head(home, loaded),
        *_agent_lines(home, loaded),
        *(f"Warning: {each}" for each in await _doubts(store, loaded, now)),
        *gateway_lines(report, now),
        *_ledger_lines(stats),
        *outbox_lines(pieces, now),
    ):
        store.say(line)
    await store.note_earlier()


def _head(home: HermesHome, loaded: LoadedConfig) -> Iterator[str]:
    yield f"Hermes {__version__}, home {home.root}"
    if loaded.errors:
        yield "Configuration: invalid"
        for problem in loaded.errors:
            yield f"  {problem}"
        return
    config = loaded.config
    yield f"Model: {_model(config)}"
    if config.terminal.backend == "local":
        yield f"Commands {ON_THIS_COMPUTER}"
    doubts = len(loaded.warnings)
    yield f"Configuration: valid{f', {doubts} warnings (hermes config check)' if doubts else ''}"
    enabled = _enabled(loaded)
    yield f"Platforms: {', '.join(enabled) if enabled else 'none enabled'}"


def _config_facts(loaded: LoadedConfig) -> dict[str, object]:
    return {
        "loads": not loaded.errors,
        "errors": [str(problem) for problem in loaded.errors],
        "warnings": list(loaded.warnings),
        "model": None if loaded.errors else _model(loaded.config),
        "platforms": [] if loaded.errors else _enabled(loaded),
        "backend": None if loaded.errors else loaded.config.terminal.backend,
    }


def _agents(home: HermesHome, loaded: LoadedConfig) -> dict[str, str | None]:
    """Return the agents beside `main`, and why those that cannot answer cannot."""
    if loaded.errors:
        return {}
    problems = model_problems(loaded, home)
    return {agent: problems.get(agent) for agent in {**problems, **loaded.config.agents}}


async def _doubts(store: HomeLedger, loaded: LoadedConfig, now: float) -> list[str]:
    if loaded.errors:
        return []
    keys = await store.ledger.keys()
    return [*config_doubts(loaded, this_home()), *key_doubts(loaded.config, keys, now)]


def _agent_lines(home: HermesHome, loaded: LoadedConfig) -> Iterator[str]:
    agents = _agents(home, loaded)
    if working := [agent for agent, problem in agents.items() if problem is None]:
        yield f"Agents: {', '.join(dict.fromkeys([DEFAULT_AGENT, *working]))}"
    for agent, problem in agents.items():
        if problem is not None:
            yield f"Agent {agent} cannot answer: {problem}"


def _model(config: Settings) -> str:
    provider = f" ({config.model.provider})" if config.model.provider else ""
    return f"{config.model.model or 'not chosen'}{provider}"


def _enabled(loaded: LoadedConfig) -> list[str]:
    """Name the platforms that are switched on, by the configuration or by their variables."""
    from hermes.app.platforms import enabled_platforms  # noqa: PLC0415 - adapters are heavy

    named = {name for name, each in loaded.config.platforms.items() if each.enabled}
    return sorted(named | {each.name for each in enabled_platforms(loaded, this_home())})


def _ledger_lines(stats: LedgerStats) -> Iterator[str]:
    yield f"Conversations: {stats.sessions}, {stats.messages} messages"
    waiting = (
        (stats.inbox_waiting, f"{stats.inbox_waiting} waiting to be answered"),
        (stats.open_turns, count(stats.open_turns, "open turn")),
        (stats.approvals_pending, count(stats.approvals_pending, "open approval")),
    )
    open_things = [text for number, text in waiting if number]
    if open_things:
        yield f"Open: {', '.join(open_things)}"
