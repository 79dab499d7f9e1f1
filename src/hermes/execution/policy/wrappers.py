"""Commands that run the command line that follows them."""

from collections.abc import Iterator

from hermes.execution.policy.calls import Call
from hermes.execution.policy.inner import REDISCOVER, Inner, Run, ShellText, command_start
from hermes.execution.policy.vocabulary import words

__all__ = ["RUNNERS", "WRAPPERS", "runner", "wrapped"]

# name -> (options that take a value, operands before the command)
WRAPPERS: dict[str, tuple[str, int]] = {
    "nohup": ("", 0),
    "setsid": ("", 0),
    "nice": ("-n --adjustment", 0),
    "ionice": ("-c -n -p --class --classdata", 0),
    "timeout": ("-s -k --signal --kill-after", 1),
    "gtimeout": ("-s -k --signal --kill-after", 1),
    "time": ("-f -o --format --output", 0),
    "stdbuf": ("-i -o -e --input --output --error", 0),
    "chrt": ("-T -P -D", 1),
    "taskset": ("", 1),
    "command": ("", 0),
    "builtin": ("", 0),
    "exec": ("-a", 0),
    "busybox": ("", 0),
    "toybox": ("", 0),
    "env": ("-u -C --unset --chdir -a --argv0", 0),
    "chroot": ("--userspec --groups", 1),
    "unshare": ("-S -G -R -w --root --wd --setuid --setgid --propagation", 0),
    "nsenter": ("-t -S -G --target --setuid --setgid", 0),
    "systemd-run": ("-p -u -E -d -M --property --unit --setenv --slice --uid --gid --on-active", 0),
    "flock": ("-w -E --timeout --conflict-exit-code", 1),
    "strace": ("-o -e -p -s -u -E -a -I -O -S -b -P", 0),
    "ltrace": ("-o -e -p -s -u -a -n -l -x", 0),
    "valgrind": ("", 0),
    "sudo": ("-u -g -h -p -C -T -r -t -D -R -U --user --group --host --prompt --chdir --role", 0),
    "doas": ("-u -C", 0),
    "pkexec": ("--user", 0),
    "gosu": ("", 1),
    "su-exec": ("", 1),
    "setpriv": ("--reuid --regid --groups --inh-caps --bounding-set", 0),
    "capsh": ("", 0),
    "setarch": ("", 1),
    "linux32": ("", 0),
    "linux64": ("", 0),
    "firejail": ("", 0),
    "bwrap": ("", 0),
    "proot": ("-r -b -w -q", 0),
    "fakeroot": ("-l -s -i -b", 0),
    "fakechroot": ("", 0),
    "dbus-run-session": ("", 0),
    "dbus-launch": ("", 0),
    "xvfb-run": ("-s -n -e -f -p -w --server-args --server-num", 0),
    "catchsegv": ("", 0),
    "rlwrap": ("", 0),
    "unbuffer": ("", 0),
    "winpty": ("", 0),
    "caffeinate": ("-t -w", 0),
    "arch": ("", 0),
    "prlimit": ("-p -o", 0),
    "cgexec": ("-g", 0),
    "numactl": ("-C -N -m -i -p", 0),
    "torsocks": ("", 0),
    "proxychains": ("-f", 0),
    "proxychains4": ("-f", 0),
    "sshpass": ("-p -f -d -P", 0),
    "direnv": ("", 2),
    "entr": ("", 0),
    "chpst": ("-u -U -b -/ -n -l -L -m -d -o -p -f -c -r -t -e", 0),
    "setuidgid": ("", 1),
    "start-stop-daemon": ("", 0),
    "faketime": ("", 1),
    "choom": ("-n -p", 0),
    "coproc": ("", 0),
    "noglob": ("", 0),
    "nocorrect": ("", 0),
    "then": ("", 0),
    "do": ("", 0),
    "else": ("", 0),
}

# subcommands before a command line
RUNNERS: dict[str, tuple[str, ...]] = {
    "poetry": ("run",), "uv": ("run",), "pipenv": ("run",), "pdm": ("run",), "hatch": ("run",),
    "conda": ("run",), "mamba": ("run",), "bundle": ("exec",), "npm": ("exec", "x"),
    "pnpm": ("exec", "dlx"), "yarn": ("exec",), "mise": ("exec", "x"), "asdf": ("exec",),
    "dotenv": ("run",), "doppler": ("run",), "op": ("run",), "aws-vault": ("exec",),
    "ip": ("netns",), "vagrant": (), "rbenv": ("exec",), "pyenv": ("exec",), "nix": ("shell",),
}  # fmt: skip


def wrapped(call: Call) -> Iterator[Inner]:
    """Yield the command line that a wrapper runs."""
    takes_value, skip = WRAPPERS[call.name]
    start = command_start(call.args, frozenset(takes_value.split()), skip)
    if call.name == "env":
        for text in call.values_of("-S", "--split-string"):
            yield ShellText(text, "env")
    if call.name == "command" and call.letters() & {"v", "V"}:
        return
    if start is None:
        if call.name in {"sudo", "doas"} and call.stdin is not None:
            yield ShellText(call.stdin, call.name)
        return
    via = "container" if call.name in {"chroot", "proot"} else call.name
    yield Run(call.args[start:], via)
    if any(a.startswith("-") for a in call.args[:start]):
        for index in range(start + 1, len(call.args)):
            if call.args[index] in REDISCOVER:
                yield Run(call.args[index:], via)
                return


def runner(call: Call) -> Iterator[Inner]:
    """Yield the command line after `run` or `exec` of a project tool."""
    for verb in RUNNERS[call.name]:
        if verb in call.args[:3]:
            rest = call.args[call.args.index(verb) + 1 :]
            takes_value = words(
                "-n -p --name --with --python --directory --project --env-file -c -C"
            )
            skip = 2 if call.name == "ip" else 0
            start = command_start(rest, takes_value, skip)
            if start is not None:
                yield Run(rest[start:], call.name)
            yield from (Run(rest[i:], call.name) for i in range(len(rest)) if rest[i] in REDISCOVER)
            for option in ("-c", "--call"):
                yield from (ShellText(v, call.name) for v in call.values_of(option))
