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
    text = script(click.Command("hermes"), {}, "hermes", "_HERMES_COMPLETE").source()
    # click cuts what it says about a word at the first comma.
    text = text.replace('string split "," $completion', 'string split -m 1 "," $completion')
    click.echo(text)
