"""Commands that run elsewhere: other machines, containers, terminals."""

import re
from collections.abc import Callable, Iterator

from hermes.execution.policy.calls import Call
from hermes.execution.policy.inner import REDISCOVER, Inner, Run, ShellText, command_start
from hermes.execution.policy.vocabulary import words

__all__ = ["HOSTS"]

_LOCALHOST = re.compile(r"(?:.*@)?(?:localhost|127\.\d+\.\d+\.\d+|::1|\[::1\]|0\.0\.0\.0)$")
_SSH_VALUES = words("-b -c -D -E -e -F -I -i -J -L -l -m -O -o -p -Q -R -S -W -w -B")


def _ssh(call: Call) -> Iterator[Inner]:
    host = command_start(call.args, _SSH_VALUES, 0)
    if host is None:
        return
    via = "local-ssh" if _LOCALHOST.match(call.args[host]) else "ssh"
    rest = [a for a in call.args[host + 1 :] if a != "--"]
    while rest and rest[0].startswith("-"):
        rest = rest[2:] if rest[0] in _SSH_VALUES else rest[1:]
    if rest:
        yield ShellText(" ".join(rest), via)
    elif call.stdin is not None:
        yield ShellText(call.stdin, via)


_DOCKER_VALUES = words(
    "-v -e -p -w -u -h -m -l -a -c --name --volume --env --publish --workdir --user --hostname "
    "--memory --label --network --net --mount --entrypoint --cpus --add-host --device --gpus "
    "--platform --restart --ulimit --env-file --pull --shm-size --cap-add --cap-drop --ipc --pid "
    "--security-opt --tmpfs --dns --log-driver --log-opt --runtime --userns --volumes-from -H "
    "--context --host --config --detach-keys --index -f --file --project-name"
)


def _docker(call: Call) -> Iterator[Inner]:
    sub = command_start(call.args, _DOCKER_VALUES, 0)
    if sub is None:
        return
    if call.args[sub] in {"compose", "container"}:
        inner = command_start(call.args[sub + 1 :], _DOCKER_VALUES, 0)
        if inner is None:
            return
        sub += 1 + inner
    verb, rest = call.args[sub], call.args[sub + 1 :]
    mounted = any(a.startswith(("-v", "--volume", "--mount", "--privileged")) for a in rest)
    if verb == "exec" or (verb == "run" and mounted):
        start = command_start(rest, _DOCKER_VALUES, 1)
        if start is not None:
            yield Run(rest[start:], "container")


def _after_dashes(call: Call) -> Iterator[Inner]:
    if "--" in call.args:
        rest = call.args[call.args.index("--") + 1 :]
        if rest:
            yield Run(rest, "container")


def _terminal(call: Call) -> Iterator[Inner]:
    for arg in call.args:
        if not arg.startswith("-"):
            yield ShellText(arg, call.name)
    words = [a for a in call.args if not a.startswith("-") and a not in {"Enter", "C-m"}]
    for index in range(len(words)):
        if words[index] in REDISCOVER:
            yield ShellText(" ".join(words[index:]), call.name)


def _screen(call: Call) -> Iterator[Inner]:
    start = command_start(call.args, words("-S -t -c -h -p -e -s -T -x -r"), 0)
    if start is not None:
        yield Run(call.args[start:], "screen")
    yield from _terminal(call)


HOSTS: dict[str, Callable[[Call], Iterator[Inner]]] = {
    "ssh": _ssh,
    "autossh": _ssh,
    "mosh": _after_dashes,
    "docker": _docker,
    "podman": _docker,
    "nerdctl": _docker,
    "kubectl": _after_dashes,
    "oc": _after_dashes,
    "runuser": _after_dashes,
    "tmux": _terminal,
    "zellij": _terminal,
    "xterm": _terminal,
    "gnome-terminal": _terminal,
    "hyperfine": _terminal,
    "concurrently": _terminal,
    "screen": _screen,
}
