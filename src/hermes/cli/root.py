"""The command tree, and how an error looks at the terminal."""

import gc
import os
import sys
from collections.abc import Callable
from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from hermes import __version__
from hermes.config.environment import process_environ, work_on
from hermes.domain.errors import HermesError
from hermes.domain.wording import harmless

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

COMMANDS: dict[str, str] = {
    "agent": "The agents of this home, and which of them messages are for.",
    "approvals": "What needs a person's approval, and what was granted.",
    "chat": "Talk to the agent: interactively, or one question with -q.",
    "completion": "Print a script that completes commands and flags in the shell.",
    "config": "Show, change, check and migrate the configuration.",
    "doctor": "List everything that is wrong or doubtful, and what to do.",
    "gateway": "Run the agent behind the chat platforms.",
    "hooks": "List, enable and disable gateway hooks.",
    "import": "Bring the conversations of an earlier Hermes.",
    "keys": "Make, list and revoke the keys of the HTTP door.",
    "mcp": "Add, list, test and remove MCP servers, whose tools the agent uses.",
    "model": "Show and choose the model; add local ones.",
    "pairing": "Let people in who were shown a pairing code.",
    "profile": "Separate installs side by side: list, use, create, copy, export, import.",
    "prompt-size": "Show the size of the fixed prompt, part by part.",
    "sessions": "List, show, search, export and tidy up conversations.",
    "setup": "Answer the few questions that matter and write the configuration.",
    "slack": "Print the manifest of the Slack app.",
    "status": "Show the model, the configuration, the gateway and the size of the ledger.",
    "tools": "The tools of the agent: list, enable and disable them.",
    "webhook": "Let services wake the agent: add, list, remove and test routes.",
}
"""Command -> short help."""


def load_command(name: str) -> click.Command:
    """Import `hermes.cli.commands.<name>`: `-` as `_`, a word of Python with `_` behind it."""
    module = name.replace("-", "_") + ("_" if iskeyword(name) else "")
    command = import_module(f"hermes.cli.commands.{module}").command
    assert isinstance(command, click.Command)
    gc.freeze()
    gc.enable()
    _take_profile(command)
    return command


def _take_profile(command: click.Command) -> None:
    """Have a command, and those below it, take the profile too: `hermes status -p work`."""
    taken = {name for each in command.params for name in each.opts}
    # What a program is started with (`mcp add NAME npx -p ...`) is its own.
    taken |= {
        "-p" for each in command.params if each.nargs == -1 and each.type is click.UNPROCESSED
    }
    names = [name for name in ("-p", "--profile") if name not in taken]
    if "--profile" in names:
        command.params.append(_profile_option(*names, hidden=True))
    for each in command.commands.values() if isinstance(command, click.Group) else ():
        _take_profile(each)


_CHAT_OPTIONS = (
    click.option("-q", "--query", help="Ask one question and print the answer; `-` reads stdin."),
    click.option("-z", "--oneshot", help="The same as -q."),
    click.option("-Q", "--quiet", is_flag=True, help="No notices on stderr."),
    click.option("-r", "--resume", metavar="ID|TITLE", help="Continue this session."),
    click.option(
        "-c",
        "--continue",
        "latest",
        is_flag=False,
        flag_value="",
        metavar="[NAME]",
        help="Continue the latest session, or the latest of that name.",
    ),
    click.option("-a", "--agent", metavar="ID", help="Talk to this agent."),
    click.option("-m", "--model", help="Use this model."),
    click.option("--provider", help="Use this provider."),
    click.option("-t", "--toolsets", metavar="A,B", help="Use these toolsets."),
    click.option("--max-turns", type=click.IntRange(min=1), help="Model calls a turn may make."),
    click.option("--yolo", is_flag=True, help="Ask for no approval; what is never allowed stays."),
    click.option("--usage-file", type=click.Path(path_type=Path), help="Write usage as JSON here."),
    click.option("--source", default="cli", help="Label of a new session; `tool` hides it."),
    click.option("--no-restore-cwd", is_flag=True, help="Move the session to this directory."),
    click.option("--ignore-rules", is_flag=True, help="Leave out SOUL.md, memory, project files."),
)


def chat_options(command: Decorated) -> Decorated:
    """Give a command the flags of the chat; `hermes` itself takes them too."""
    for option in reversed(_CHAT_OPTIONS):
        command = option(command)
    return command


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return sorted(COMMANDS)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the flags; in `-c chat` the word is the command, not a name."""
        split = (n for n, word in enumerate(args[1:], 1) if word in COMMANDS)
        at = next((n for n in split if args[n - 1] in {"-c", "--continue"}), None)
        return super().parse_args(ctx, args if at is None else [*args[:at], "", *args[at:]])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [name for name in COMMANDS if name.startswith(incomplete)]
        found = [CompletionItem(name, help=COMMANDS[name]) for name in names]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        return load_command(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name]) for name in sorted(COMMANDS)])


def _choose_profile(_ctx: click.Context, _param: click.Parameter, name: str | None) -> None:
    if name is not None:
        from hermes.config.paths import HermesHome  # noqa: PLC0415 - not for every start
        from hermes.config.profiles import existing_profile  # noqa: PLC0415

        work_on(str(existing_profile(HermesHome.first(process_environ()), name).root))


def _profile_option(*names: str, hidden: bool = False) -> click.Option:
    return click.Option(
        names,
        metavar="NAME",
        is_eager=True,
        expose_value=False,
        callback=_choose_profile,
        hidden=hidden,
        help="Work on this profile.",
    )


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
)
@chat_options
@click.version_option(__version__, "-V", "--version", message="hermes %(version)s")
@click.pass_context
def hermes(ctx: click.Context, /, **given: Any) -> None:
    """One agent behind many doors. Without a command: the chat, with these flags."""
    flags = {name: value for name, value in given.items() if on_command_line(ctx, name)}
    if ctx.invoked_subcommand is None:
        ctx.obj = flags
        ctx.invoke(load_command("chat"))
    elif ctx.invoked_subcommand == "chat":
        ctx.obj = flags
    elif flags:
        named = next(p.opts[-1] for p in ctx.command.params if p.name in flags)
        raise click.UsageError(f"{named} goes with `hermes chat`, not `{ctx.invoked_subcommand}`.")


hermes.params.append(_profile_option("-p", "--profile"))


def on_command_line(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


def run() -> None:
    """Run the command tree; print errors as a sentence and a next step."""
    try:
        sys.exit(hermes.main(prog_name="hermes", standalone_mode=False) or 0)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        sys.stderr.write("hermes: interrupted\n")
        sys.exit(130)
    except HermesError as error:
        sys.stderr.write(harmless(f"hermes: {error.message}\n"))
        if error.hint:
            sys.stderr.write(harmless(f"  -> {error.hint}\n"))
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # Nobody reads us any more: leave quietly, as `yes | head` does.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except Exception as bug:  # the boundary of a command: a bug is one line for a person
        if process_environ().get("HERMES_DEBUG"):
            raise
        what = f"{type(bug).__name__}: {bug}"
        sys.stderr.write(harmless(f"hermes: something unexpected happened: {what}\n"))
        sys.stderr.write("  -> Run it again with HERMES_DEBUG=1 to see where it happened.\n")
        sys.exit(70)
