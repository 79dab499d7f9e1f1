"""`hermes hooks`: gateway hooks and whether they may run."""

import click

from hermes.cli.home import this_home
from hermes.control.hook_files import disable_hook, enable_hook, hook_files


@click.group("hooks")
def command() -> None:
    """List, enable and disable gateway hooks."""


@command.command("list")
def list_command() -> None:
    """List the hooks of this home and what keeps each from running."""
    home = this_home()
    hooks = hook_files(home)
    if not hooks:
        click.echo(f"There are no hooks in {home.hooks_dir}.")
    for hook in hooks:
        state = f"off: {hook.problem}" if hook.problem else "enabled"
        click.echo(f"{hook.name}\t{', '.join(hook.events)}\t{state}")


@command.command("enable")
@click.argument("name")
def enable_command(name: str) -> None:
    """Enable the hook NAME with its files as they are; changed files must be enabled again."""
    hook = enable_hook(this_home(), name)
    click.echo(f"The hook {name} runs from the next start of the gateway on.")
    click.echo(f"It receives {', '.join(hook.events)}; its files have the hash {hook.sha256[:16]}.")


@command.command("disable")
@click.argument("name")
def disable_command(name: str) -> None:
    """Keep the hook NAME from running."""
    disable_hook(this_home(), name)
    click.echo(f"The hook {name} no longer runs from the next start of the gateway on.")
