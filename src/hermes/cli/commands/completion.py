"""`hermes completion`: scripts that complete commands and flags."""

import click
from click.shell_completion import get_completion_class


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    r"""Print a script that completes commands and flags in SHELL.

    \b
    bash  eval "$(hermes completion bash)"      in ~/.bashrc
    zsh   eval "$(hermes completion zsh)"       in ~/.zshrc, after compinit
    fish  hermes completion fish | source       in ~/.config/fish/config.fish
    """
    script = get_completion_class(shell)
    assert script is not None
    click.echo(script(click.Command("hermes"), {}, "hermes", "_HERMES_COMPLETE").source())
