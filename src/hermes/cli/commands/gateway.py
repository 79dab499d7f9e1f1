"""`hermes gateway`: the process behind the chat platforms."""

import logging
import sys
import time

import click
import msgspec

from hermes.app.options import AppOptions, run
from hermes.cli.gateway import (
    Started,
    ask_to_restart,
    gateway_facts,
    gateway_lines,
    gateway_report,
    start_detached,
    stop,
    wait_for_successor,
)
from hermes.config.environment import process_environ
from hermes.config.loader import inspect_config, read_env
from hermes.config.paths import HermesHome
from hermes.config.secrets import Redactor, secrets_in_variables

NOT_RUNNING = 3
"""What `status` ends with when nothing runs, as service managers expect."""


@click.group("gateway")
def command() -> None:
    """Run the agent behind the chat platforms."""


@command.command("run")
@click.option("--replace", is_flag=True, help="Take over from a gateway that is running.")
@click.option("-v", "--verbose", is_flag=True, help="Show time and origin of every line.")
@click.option("-q", "--quiet", is_flag=True, help="Show only what needs attention.")
def run_command(replace: bool, verbose: bool, quiet: bool) -> None:
    """Run in the foreground until stopped.

    SIGTERM or Ctrl-C finishes what runs and ends; a second one ends at once.
    SIGUSR1 finishes and ends with exit code 75, to be started again. Exit code
    78 means that the configuration cannot work.
    """
    from hermes.app.serve import serve  # noqa: PLC0415 - the other subcommands do without it

    home = _home()
    _log_to_console(home, verbose=verbose, quiet=quiet)
    sys.exit(run(serve(_options(home), replace=replace)))


@command.command("start")
def start_command() -> None:
    """Start in the background."""
    _show_start(start_detached(_home(), process_environ()))


@command.command("stop")
@click.option("--timeout", type=click.FloatRange(min=0), default=90.0, show_default=True)
@click.option("--force", is_flag=True, help="Kill it if it has not ended by then.")
def stop_command(timeout: float, force: bool) -> None:
    """Finish what runs and stop."""
    if stop(_home(), patience=timeout, force=force):
        click.echo("The gateway has stopped.")
    else:
        click.echo("No gateway is running.")


@command.command("restart")
@click.option("--timeout", type=click.FloatRange(min=0), default=90.0, show_default=True)
def restart_command(timeout: float) -> None:
    """Finish what runs, stop and start again."""
    from hermes.app.serve import check_serving  # noqa: PLC0415 - see above

    home = _home()
    # A configuration that cannot work must not cost the gateway that does.
    check_serving(_options(home))
    old = ask_to_restart(home, patience=timeout)
    if old is not None and old.supervised:
        new = wait_for_successor(home, old)
        if new is None:
            click.echo("The gateway has stopped; its supervisor has not started it again yet.")
            sys.exit(1)
        click.echo(f"The gateway runs again (process {new.pid}).")
        return
    _show_start(start_detached(home, process_environ()))


@command.command("status")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def status_command(as_json: bool) -> None:
    """Say how the gateway and its platforms do; exit code 3 if it does not run."""
    now = time.time()
    report = gateway_report(_home(), now)
    if as_json:
        click.echo(msgspec.json.encode(gateway_facts(report)).decode())
    else:
        for line in gateway_lines(report, now):
            click.echo(line)
    sys.exit(0 if report.running else NOT_RUNNING)


@command.command("list")
def list_command() -> None:
    """List the gateways of this home and of the profiles below it."""
    home, now = _home(), time.time()
    profiles = home.root / "profiles"
    names = sorted(p.name for p in profiles.iterdir() if p.is_dir()) if profiles.is_dir() else []
    for name, each in [("default", home), *((name, home.profile(name)) for name in names)]:
        report = gateway_report(each, now)
        process = f" (process {report.running.pid})" if report.running else ""
        click.echo(f"{name}\t{report.summary}{process}")


def _options(home: HermesHome) -> AppOptions:
    workspace = home.subdirectory(home.workspace)
    return AppOptions(
        home=home, environ=process_environ(), cwd=workspace, can_ask=True, platform="gateway"
    )


def _home() -> HermesHome:
    return HermesHome.from_environ(process_environ())


def _show_start(started: Started) -> None:
    if started.exit_code is not None:
        if started.said:
            click.echo(started.said, err=True)
        click.echo(f"The gateway ended at once (exit code {started.exit_code}).", err=True)
        sys.exit(started.exit_code or 1)
    state = "runs" if started.ready else "is starting"
    click.echo(f"The gateway {state} (process {started.pid}). See: hermes gateway status")


class _ConsoleFormatter(logging.Formatter):
    """Log lines for a person, without secrets."""

    def __init__(self, pattern: str, redactor: Redactor) -> None:
        super().__init__(pattern)
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        return self._redactor.redact(super().format(record))


def _log_to_console(home: HermesHome, *, verbose: bool, quiet: bool) -> None:
    """Show log lines of Hermes on stderr, beside the files that hold everything."""
    environ = process_environ()
    loaded = inspect_config(home, environ).loaded
    secrets = loaded.secrets if loaded else secrets_in_variables(read_env(home).values, environ)
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING if quiet else logging.NOTSET)
    pattern = "%(asctime)s %(levelname)-7s %(name)s: %(message)s" if verbose else "%(message)s"
    handler.setFormatter(_ConsoleFormatter(pattern, Redactor(secrets)))
    logging.getLogger("hermes").addHandler(handler)
