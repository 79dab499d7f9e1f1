"""What else a command runs: wrappers, nested shells, options that take code.

Tables first; a command that is in none of them runs nothing but itself.
`unwrap` over-reports on purpose: naming a harmless word as a command costs
nothing, missing one does.
"""

import re
from collections.abc import Iterator

from hermes.execution.policy.calls import Call
from hermes.execution.policy.hosts import HOSTS
from hermes.execution.policy.inner import SHELLS, Inner, ShellText
from hermes.execution.policy.languages import programs
from hermes.execution.policy.tools import TOOLS
from hermes.execution.policy.vocabulary import words
from hermes.execution.policy.wrappers import RUNNERS, WRAPPERS, runner, wrapped

__all__ = ["shell_code", "unwrap"]

# name -> options whose value is shell code
_CODE_OPTIONS: dict[str, tuple[str, ...]] = {
    "tar": ("--checkpoint-action", "--to-command", "-I", "--use-compress-program", "--info-script",
            "--rsh-command", "-F", "--new-volume-script"),
    "bsdtar": ("--use-compress-program",),
    "rsync": ("-e", "--rsh", "--rsync-path"),
    "man": ("-P", "--pager"),
    "split": ("--filter",),
    "sort": ("--compress-program",),
    "script": ("-c", "--command"),
    "su": ("-c", "--command", "--session-command"),
    "runuser": ("-c", "--command", "--session-command"),
    "sg": ("-c",),
    "flock": ("-c", "--command"),
    "nix-shell": ("--run", "--command"),
    "zip": ("-TT", "--unzip-command"),
    "ssh": ("-o",),
    "scp": ("-S", "-o"),
    "sftp": ("-S", "-o"),
    "ncat": ("-e", "-c", "--exec", "--sh-exec"),
    "nc": ("-e", "-c"),
    "mutt": ("-e",),
    "emacs": (),
    "wget": ("--use-askpass",),
    "hyperfine": ("--prepare", "--setup", "--cleanup"),
    "nodemon": ("--exec", "-x"),
    "cargo-watch": ("-s", "-x"),
    "start-stop-daemon": ("--exec", "-x", "--startas", "-a"),
    "tcpdump": ("-z",),
    "logrotate": (),
    "apt-get": ("-o",),
    "apt": ("-o",),
}  # fmt: skip

_CODE_VARIABLES = words(
    "GIT_SSH_COMMAND GIT_PAGER PAGER EDITOR VISUAL GIT_EDITOR GIT_SEQUENCE_EDITOR MANPAGER BROWSER "
    "PROMPT_COMMAND BASH_ENV ENV GIT_EXTERNAL_DIFF GIT_ASKPASS SSH_ASKPASS SUDO_ASKPASS LESSOPEN "
    "LESSCLOSE GIT_PROXY_COMMAND RSYNC_RSH CVS_RSH TAR_OPTIONS PS4 PERL5OPT RUBYOPT "
    "PYTHONSTARTUP NODE_OPTIONS GIT_CONFIG_VALUE_0"
)


def unwrap(call: Call) -> Iterator[Inner]:
    """Yield everything that `call` would run besides itself."""
    special = TOOLS.get(call.name) or HOSTS.get(call.name)
    if special is not None:
        yield from special(call)
    if call.name in SHELLS:
        code = shell_code(call)
        if code is not None:
            yield code
    if call.name in WRAPPERS:
        yield from wrapped(call)
    for option_value in call.values_of(*_CODE_OPTIONS.get(call.name, ())):
        yield ShellText(_code_of(option_value), call.name)
    if call.name in RUNNERS:
        yield from runner(call)
    yield from programs(call)
    yield from _from_environment(call)


def _code_of(value: str) -> str:
    """Drop the key in front of code: `exec=…`, `ProxyCommand=…`."""
    return re.sub(r"^(?:exec=|[A-Za-z:-]+(?:Command|Invoke|Invoke-Success)[= ])", "", value)


def shell_code(call: Call) -> ShellText | None:
    """Return the script that a shell is given with -c or on its input, if it is known."""
    args = call.args
    index = 0
    while index < len(args):
        arg = args[index]
        if arg[:2] in {"-c", "+c"} or re.match(r"-[a-zA-Z]*c[a-zA-Z]*$", arg):
            rest = [a for a in args[index + 1 :] if a != "--"]
            while rest and re.match(r"[-+][a-zA-Z]+$", rest[0]):
                rest.pop(0)
            return ShellText(rest[0], call.name, tuple(rest[2:])) if rest else None
        if arg in {"-o", "+o", "-O", "+O", "--rcfile", "--init-file"}:
            index += 1
        elif arg == "--command" and index + 1 < len(args):
            return ShellText(args[index + 1], call.name)
        elif not arg.startswith(("-", "+")) or arg == "-":
            break
        index += 1
    reads_stdin = index >= len(args) or args[index] in {"-", "/dev/stdin", "/dev/fd/0"}
    if (reads_stdin or "s" in call.letters()) and call.stdin is not None:
        return ShellText(call.stdin, call.name)
    return None


def _from_environment(call: Call) -> Iterator[Inner]:
    pairs = list(call.assigns)
    if call.name in {"env", "export", "declare", "sudo", "typeset"}:
        pairs += [(a.partition("=")[0], a.partition("=")[2]) for a in call.args if "=" in a]
    for name, value in pairs:
        if name in _CODE_VARIABLES:
            yield ShellText(value, "environment")
