"""The command tree, and how an error looks at the terminal."""

import os
import sys
from importlib import import_module
from keyword import iskeyword

import click

from hermes import __version__
from hermes.config.environment import process_environ
from hermes.domain.errors import HermesError

COMMANDS: dict[str, str] = {
    "approvals": "What needs a person's approval, and what was granted.",
    "chat": "Talk to the agent: interactively, or one question with -q.",
    "config": "Show, change, check and migrate the configuration.",
    "gateway": "Run the agent behind the chat platforms.",
    "hooks": "List, enable and disable gateway hooks.",
    "import": "Bring the conversations of an earlier Hermes.",
    "keys": "Make, list and revoke the keys of the HTTP door.",
    "model": "Show and choose the model; add local ones.",
    "pairing": "Let people in who were shown a pairing code.",
    "prompt-size": "Show the size of the fixed prompt, part by part.",
    "sessions": "List, show, search, export and tidy up conversations.",
    "setup": "Answer the few questions that matter and write the configuration.",
    "status": "Show the model, the configuration, the gateway and the size of the ledger.",
    "webhook": "Let services wake the agent: add, list, remove and test routes.",
}
"""Command -> short help."""


def load_command(name: str) -> click.Command:
    """Import `hermes.cli.commands.<name>`: `-` as `_`, a word of Python with `_` behind it."""
    module = name.replace("-", "_") + ("_" if iskeyword(name) else "")
    command = import_module(f"hermes.cli.commands.{module}").command
    assert isinstance(command, click.Command)
    return command


OWN_OPTIONS = frozenset({"-h", "--help", "-V", "--version"})


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        return load_command(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name]) for name in sorted(COMMANDS)])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", message="hermes %(version)s")
def hermes() -> None:
    """One agent behind many doors."""


def run() -> None:
    """Run the command tree; print errors as a sentence and a next step."""
    try:
        hermes.main(args=with_default_command(sys.argv[1:]), standalone_mode=True)
    except HermesError as error:
        sys.stderr.write(f"hermes: {error.message}\n")
        if error.hint:
            sys.stderr.write(f"  -> {error.hint}\n")
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # Nobody reads us any more: leave quietly, as `yes | head` does.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except Exception as bug:  # the boundary of a command: a bug is one line for a person
        if process_environ().get("HERMES_DEBUG"):
            raise
        sys.stderr.write(f"hermes: something unexpected happened: {type(bug).__name__}: {bug}\n")
        sys.stderr.write("  -> Run it again with HERMES_DEBUG=1 to see where it happened.\n")
        sys.exit(70)


def with_default_command(arguments: list[str]) -> list[str]:
    """Return the arguments with `chat` put in where no command is named."""
    if arguments and (arguments[0] in OWN_OPTIONS or not arguments[0].startswith("-")):
        return arguments
    return ["chat", *arguments]
