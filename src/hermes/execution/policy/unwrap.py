"""What else a command runs: wrappers, nested shells, options that take code.

Tables first; a command that is in none of them runs nothing but itself.
`unwrap` over-reports on purpose: naming a harmless word as a command costs
nothing, missing one does.
"""

import re
from collections.abc import Callable, Iterator
from typing import TypeAlias

from msgspec import Struct

from hermes.execution.policy.calls import Call, Source
from hermes.execution.policy.scope import COMPUTED

__all__ = ["SHELLS", "CodeText", "Inner", "Run", "ShellText", "shell_code", "unwrap"]


class Run(Struct, frozen=True):
    """Another command line."""

    argv: tuple[str, ...]
    via: str


class ShellText(Struct, frozen=True):
    """A script for a shell."""

    text: str
    via: str
    positional: tuple[str, ...] | None = None
    fresh: bool = True
    """False where it runs in the same shell and sees its variables."""


class CodeText(Struct, frozen=True):
    """A program in another language."""

    language: str
    text: str


Inner: TypeAlias = Run | ShellText | CodeText

SHELLS = frozenset(
    {"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "csh", "tcsh", "rbash", "hush"}
)
_ASSIGN = re.compile(r"[A-Za-z_]\w*=")
_LOCALHOST = re.compile(r"(?:.*@)?(?:localhost|127\.\d+\.\d+\.\d+|::1|\[::1\]|0\.0\.0\.0)$")
_REDISCOVER = SHELLS | {
    "rm", "dd", "mkfs", "shutdown", "reboot", "halt", "poweroff", "find", "chmod", "chown",
    "kill", "python", "python3", "perl", "curl", "wget", "env", "sudo", "xargs", "eval",
}  # fmt: skip

# name -> (options that take a value, operands before the command)
_WRAPPERS: dict[str, tuple[str, int]] = {
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

# subcommands before a command line
_RUNNERS: dict[str, tuple[str, ...]] = {
    "poetry": ("run",), "uv": ("run",), "pipenv": ("run",), "pdm": ("run",), "hatch": ("run",),
    "conda": ("run",), "mamba": ("run",), "bundle": ("exec",), "npm": ("exec", "x"),
    "pnpm": ("exec", "dlx"), "yarn": ("exec",), "mise": ("exec", "x"), "asdf": ("exec",),
    "dotenv": ("run",), "doppler": ("run",), "op": ("run",), "aws-vault": ("exec",),
    "ip": ("netns",), "vagrant": (), "rbenv": ("exec",), "pyenv": ("exec",), "nix": ("shell",),
}  # fmt: skip

_LANGUAGES: tuple[tuple[re.Pattern[str], str, tuple[str, ...]], ...] = (
    (re.compile(r"(?:python|pypy|micropython|ipython)[\d.]*$"), "python", ("-c",)),
    (re.compile(r"perl[\d.]*$"), "perl", ("-e", "-E")),
    (re.compile(r"(?:ruby|jruby)[\d.]*$"), "ruby", ("-e",)),
    (re.compile(r"(?:node|nodejs|bun|deno)$"), "node", ("-e", "-p", "--eval", "--print", "eval")),
    (re.compile(r"php[\d.]*$"), "php", ("-r", "-B", "-R", "-E")),
    (re.compile(r"(?:lua|luajit|texlua)[\d.]*$"), "lua", ("-e",)),
    (re.compile(r"[gmn]?awk$|busybox-awk$"), "awk", ()),
    (re.compile(r"(?:tclsh|expect|wish)[\d.]*$"), "tcl", ("-c",)),
    (re.compile(r"(?:Rscript|R)$"), "r", ("-e",)),
    (re.compile(r"osascript$"), "osascript", ("-e",)),
    (re.compile(r"(?:powershell|pwsh)(?:\.exe)?$", re.IGNORECASE), "powershell",
     ("-Command", "-command", "-c", "-C", "/c", "-EncodedCommand", "-enc", "-e", "-ec")),
    (re.compile(r"(?:guile|emacs|sbcl|ghci|ghc|julia|groovy|scala|elixir|erl)$"), "other",
     ("-e", "-c", "--eval", "-eval", "-E")),
)  # fmt: skip

_EDITORS = frozenset({"vi", "vim", "nvim", "view", "ex", "gvim", "vimdiff"})
_LINE_EDITORS = frozenset({"ed", "ex", "red", "vi", "vim"})


def unwrap(call: Call) -> Iterator[Inner]:
    """Yield everything that `call` would run besides itself."""
    special = _SPECIAL.get(call.name)
    if special is not None:
        yield from special(call)
    if call.name in SHELLS:
        code = shell_code(call)
        if code is not None:
            yield code
    if call.name in _WRAPPERS:
        yield from _wrapped(call)
    for option_value in call.values_of(*_CODE_OPTIONS.get(call.name, ())):
        yield ShellText(_code_of(option_value), call.name)
    if call.name in _RUNNERS:
        yield from _runner(call)
    yield from _language(call)
    yield from _from_environment(call)


def _code_of(value: str) -> str:
    """Drop the key in front of code: `exec=…`, `ProxyCommand=…`."""
    return re.sub(r"^(?:exec=|[A-Za-z:-]+(?:Command|Invoke|Invoke-Success)[= ])", "", value)


def _wrapped(call: Call) -> Iterator[Inner]:
    takes_value, skip = _WRAPPERS[call.name]
    start = _command_start(call.args, frozenset(takes_value.split()), skip)
    if call.name == "env":
        for text in call.values_of("-S", "--split-string"):
            yield ShellText(text, "env")
    if call.name == "command" and call.letters() & {"v", "V"}:
        return
    if start is None:
        return
    via = "container" if call.name in {"chroot", "proot"} else call.name
    yield Run(call.args[start:], via)
    if any(a.startswith("-") for a in call.args[:start]):
        for index in range(start + 1, len(call.args)):
            if call.args[index] in _REDISCOVER:
                yield Run(call.args[index:], via)
                return


def _command_start(args: tuple[str, ...], takes_value: frozenset[str], skip: int) -> int | None:
    index = 0
    while index < len(args):
        arg = args[index]
        if arg == "--":
            return index + 1 + skip if index + 1 + skip < len(args) else None
        if len(arg) > 1 and arg[0] == "-":
            cluster = arg[1] != "-" and "-" + arg[-1] in takes_value
            if arg in takes_value or (cluster and len(arg) > 2):
                index += 1
        elif _ASSIGN.match(arg):
            pass
        elif skip:
            skip -= 1
        else:
            return index
        index += 1
    return None


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


def _eval(call: Call) -> Iterator[Inner]:
    yield ShellText(" ".join(call.args), "eval", fresh=False)


def _source(call: Call) -> Iterator[Inner]:
    if call.stdin is not None and call.args[:1] in (("/dev/stdin",), ("-",), ("/dev/fd/0",)):
        yield ShellText(call.stdin, "source", fresh=False)


def _trap(call: Call) -> Iterator[Inner]:
    operands = call.operands()
    if operands:
        yield ShellText(operands[0], "trap", fresh=False)


def _alias(call: Call) -> Iterator[Inner]:
    for arg in call.args:
        _, equals, code = arg.partition("=")
        if equals:
            yield ShellText(code, "alias", fresh=False)


def _find(call: Call) -> Iterator[Inner]:
    for index, arg in enumerate(call.args):
        if arg in {"-exec", "-execdir", "-ok", "-okdir"}:
            argv: list[str] = []
            for word in call.args[index + 1 :]:
                if word in {";", "+"}:
                    break
                argv.append(word.replace("{}", COMPUTED))
            if argv:
                yield Run(tuple(argv), "find")


def _fd(call: Call) -> Iterator[Inner]:
    for index, arg in enumerate(call.args):
        if arg in {"-x", "-X", "--exec", "--exec-batch"} and call.args[index + 1 :]:
            yield Run((*call.args[index + 1 :], COMPUTED), "find")


def _xargs(call: Call) -> Iterator[Inner]:
    takes_value = frozenset("-I -n -P -L -d -E -s -a --max-args --max-procs --delimiter "
                            "--arg-file --replace --max-lines --max-chars".split())  # fmt: skip
    start = _command_start(call.args, takes_value, 0)
    if start is None:
        return
    marks = [v for v in call.values_of("-I", "--replace") if v] or ["{}"]
    argv = list(call.args[start:])
    for mark in marks:
        argv = [a.replace(mark, COMPUTED) for a in argv]
    yield Run((*argv, COMPUTED), "xargs")
    if call.stdin is not None:
        yield Run((*call.args[start:], *call.stdin.split()), "xargs")


def _parallel(call: Call) -> Iterator[Inner]:
    cut = next((i for i, a in enumerate(call.args) if a.startswith(":::")), len(call.args))
    head = call.args[:cut]
    start = _command_start(head, frozenset("-j -n -N -P -a -I --jobs --colsep -d -S".split()), 0)
    inputs = [a for a in call.args[cut:] if not a.startswith(":::")]
    if start is None:
        for line in [*inputs, *(call.stdin or "").split("\n")]:
            yield ShellText(line, "parallel")
        return
    command = " ".join(head[start:])
    for value in [COMPUTED, *inputs]:
        yield ShellText(f"{command} {value}", "parallel")


def _joined(call: Call) -> Iterator[Inner]:
    start = _command_start(call.args, frozenset({"-n", "--interval", "-d"}), 0)
    if start is not None:
        yield ShellText(" ".join(call.args[start:]), call.name)


_SSH_VALUES = frozenset(
    "-b -c -D -E -e -F -I -i -J -L -l -m -O -o -p -Q -R -S -W -w -B".split()
)


def _ssh(call: Call) -> Iterator[Inner]:
    host = _command_start(call.args, _SSH_VALUES, 0)
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


_DOCKER_VALUES = frozenset(
    "-v -e -p -w -u -h -m -l -a -c --name --volume --env --publish --workdir --user --hostname "
    "--memory --label --network --net --mount --entrypoint --cpus --add-host --device --gpus "
    "--platform --restart --ulimit --env-file --pull --shm-size --cap-add --cap-drop --ipc --pid "
    "--security-opt --tmpfs --dns --log-driver --log-opt --runtime --userns --volumes-from -H "
    "--context --host --config --detach-keys --index -f --file --project-name".split()
)


def _docker(call: Call) -> Iterator[Inner]:
    sub = _command_start(call.args, _DOCKER_VALUES, 0)
    if sub is None:
        return
    if call.args[sub] in {"compose", "container"}:
        inner = _command_start(call.args[sub + 1 :], _DOCKER_VALUES, 0)
        if inner is None:
            return
        sub += 1 + inner
    verb, rest = call.args[sub], call.args[sub + 1 :]
    mounted = any(a.startswith(("-v", "--volume", "--mount", "--privileged")) for a in rest)
    if verb == "exec" or (verb == "run" and mounted):
        start = _command_start(rest, _DOCKER_VALUES, 1)
        if start is not None:
            yield Run(rest[start:], "container")


def _after_dashes(call: Call) -> Iterator[Inner]:
    if "--" in call.args:
        rest = call.args[call.args.index("--") + 1 :]
        if rest:
            yield Run(rest, "container")


def _runner(call: Call) -> Iterator[Inner]:
    for verb in _RUNNERS[call.name]:
        if verb in call.args[:3]:
            rest = call.args[call.args.index(verb) + 1 :]
            takes_value = frozenset(
                "-n -p --name --with --python --directory --project --env-file -c -C".split()
            )
            skip = 2 if call.name == "ip" else 0
            start = _command_start(rest, takes_value, skip)
            if start is not None:
                yield Run(rest[start:], call.name)
            yield from (Run(rest[i:], call.name) for i in range(len(rest)) if rest[i] in _REDISCOVER)
            for option in ("-c", "--call"):
                yield from (ShellText(v, call.name) for v in call.values_of(option))


def _terminal(call: Call) -> Iterator[Inner]:
    for arg in call.args:
        if not arg.startswith("-"):
            yield ShellText(arg, call.name)
    words = [a for a in call.args if not a.startswith("-") and a not in {"Enter", "C-m"}]
    for index in range(len(words)):
        if words[index] in _REDISCOVER:
            yield ShellText(" ".join(words[index:]), call.name)


def _git(call: Call) -> Iterator[Inner]:
    for setting in call.values_of("-c", "--config-env"):
        key, _, value = setting.partition("=")
        if key.startswith("alias.") and not value.startswith("!"):
            yield Run(("git", *value.split()), "git")
        elif "." in key:
            yield ShellText(value.lstrip("!"), "git")
    operands = call.operands()
    if operands[:1] == ["config"] and len(operands) >= 3:
        yield ShellText(operands[-1].lstrip("!"), "git")
    if operands[:2] == ["bisect", "run"]:
        yield Run(tuple(operands[2:]) or ("true",), "git")
    if operands[:2] == ["submodule", "foreach"]:
        yield ShellText(" ".join(operands[2:]), "git")
    filters = ("--tree-filter", "--index-filter", "--msg-filter", "--env-filter", "--commit-filter")
    if operands[:1] in (["rebase"], ["filter-branch"], ["difftool"], ["mergetool"], ["fetch"],
                        ["pull"], ["push"], ["clone"], ["ls-remote"]):  # fmt: skip
        options = ("-x", "--exec", "--extcmd", "--upload-pack", "--receive-pack", "-u", *filters)
        for value in call.values_of(*options):
            yield ShellText(value, "git")
    for operand in operands:
        if operand.startswith("ext::"):
            yield ShellText(operand[5:], "git")


def _editor(call: Call) -> Iterator[Inner]:
    commands = [*call.values_of("-c", "--cmd", "-S"), *(a[1:] for a in call.args if a[:1] == "+")]
    if call.name in _LINE_EDITORS and call.stdin is not None:
        commands.extend(call.stdin.split("\n"))
    for command in commands:
        _, bang, code = command.partition("!")
        if bang:
            yield ShellText(code, call.name)
        for quoted in re.findall(r"system(?:list)?\(\s*(['\"])(.*?)\1", command):
            yield ShellText(quoted[1], call.name)


def _make(call: Call) -> Iterator[Inner]:
    texts = list(call.values_of("--eval", "-E"))
    if call.stdin is not None and any(
        v in {"-", "/dev/stdin"} for v in call.values_of("-f", "--file", "--makefile")
    ):
        texts.append(call.stdin)
    for text in texts:
        for code in re.findall(r"\$\(shell\s+(.*)\)", text):
            yield ShellText(code, "make")
        for code in re.findall(r"(?:^\t|\\n\\t|:[^=\n]*;)[-@+]*(.*)", text, re.MULTILINE):
            yield ShellText(code.replace("$$", "$"), "make")
    for arg in call.args:
        key, equals, value = arg.partition("=")
        if equals and key in {"SHELL", ".SHELLFLAGS", "CC", "MAKE"}:
            yield ShellText(value, "make")


def _database(call: Call) -> Iterator[Inner]:
    for text in [*call.args, call.stdin or ""]:
        for code in re.findall(r"(?:^|\n)\s*\.(?:shell|system)\s+(.*)", text):
            yield ShellText(code, call.name)
        for code in re.findall(r"\\!\s*(.*)", text):
            yield ShellText(code, call.name)
        for code in re.findall(r"(?:^|;)\s*(?:system|\\!)\s+(.*)", text):
            yield ShellText(code, call.name)


def _at(call: Call) -> Iterator[Inner]:
    if call.stdin is not None:
        yield ShellText(call.stdin, call.name)


def _crontab(call: Call) -> Iterator[Inner]:
    for line in (call.stdin or "").split("\n"):
        match = re.match(r"\s*(?:@\w+|(?:\S+\s+){5})(.*)", line)
        if match is not None and not line.lstrip().startswith("#"):
            yield ShellText(match.group(1), "cron")


def _gdb(call: Call) -> Iterator[Inner]:
    for command in call.values_of("-ex", "--eval-command", "-iex"):
        match = re.match(r"\s*(?:shell|!|python)\s*(.*)", command)
        if match is not None:
            yield ShellText(match.group(1), "gdb")
    if "--args" in call.args:
        rest = call.args[call.args.index("--args") + 1 :]
        if rest:
            yield Run(rest, "gdb")


def _screen(call: Call) -> Iterator[Inner]:
    start = _command_start(call.args, frozenset("-S -t -c -h -p -e -s -T -x -r".split()), 0)
    if start is not None:
        yield Run(call.args[start:], "screen")
    yield from _terminal(call)


def _cmd_exe(call: Call) -> Iterator[Inner]:
    for index, arg in enumerate(call.args):
        if arg.lower() in {"/c", "/k", "//c"}:
            yield ShellText(" ".join(call.args[index + 1 :]), "cmd")


def _sed(call: Call) -> Iterator[Inner]:
    scripts = [*call.values_of("-e", "--expression"), *call.operands()[:1]]
    for script in scripts:
        match = re.search(r"(?:^|[;\n{\d$/])\s*e\s+(.+)", script)
        if match is not None:
            yield ShellText(match.group(1), "sed")
        substitution = re.match(r"s(.)(?:.*?)\1(.*?)\1\w*e\w*$", script)
        if substitution is not None:
            yield ShellText(substitution.group(2) or COMPUTED, "sed")


def _npx(call: Call) -> Iterator[Inner]:
    for value in call.values_of("-c", "--call"):
        yield ShellText(value, "npx")
    start = _command_start(call.args, frozenset({"-p", "--package"}), 0)
    if start is not None:
        yield Run(call.args[start:], "npx")


_SPECIAL: dict[str, Callable[[Call], Iterator[Inner]]] = {
    "eval": _eval,
    "trap": _trap,
    "source": _source,
    ".": _source,
    "alias": _alias,
    "find": _find,
    "gfind": _find,
    "fd": _fd,
    "fdfind": _fd,
    "xargs": _xargs,
    "gxargs": _xargs,
    "parallel": _parallel,
    "watch": _joined,
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
    "git": _git,
    **dict.fromkeys(_EDITORS, _editor),
    "ed": _editor,
    "red": _editor,
    "make": _make,
    "gmake": _make,
    "sqlite3": _database,
    "psql": _database,
    "mysql": _database,
    "mariadb": _database,
    "at": _at,
    "batch": _at,
    "crontab": _crontab,
    "gdb": _gdb,
    "cmd": _cmd_exe,
    "cmd.exe": _cmd_exe,
    "sed": _sed,
    "gsed": _sed,
    "npx": _npx,
    "bunx": _npx,
}


def _language(call: Call) -> Iterator[Inner]:
    for names, language, options in _LANGUAGES:
        if not names.match(call.name):
            continue
        if language == "awk":
            operands = call.operands()
            yield from (CodeText("awk", operand) for operand in operands[:2])
            return
        codes = list(call.values_of(*options))
        codes += [
            call.args[i + 1]
            for i, a in enumerate(call.args[:-1])
            if re.match(r"-[A-Za-z0-9]{1,6}$", a) and a[-1] in "ceE" and a not in options
        ]
        yield from (CodeText(language, code) for code in codes)
        # Powershell runs its operands; every other one names a file there.
        if language == "powershell" and not codes:
            yield CodeText(language, " ".join(call.args))
        if not codes and call.source is not Source.NONE and call.stdin is not None:
            yield CodeText(language, call.stdin)


_CODE_VARIABLES = frozenset(
    "GIT_SSH_COMMAND GIT_PAGER PAGER EDITOR VISUAL GIT_EDITOR GIT_SEQUENCE_EDITOR MANPAGER BROWSER "
    "PROMPT_COMMAND BASH_ENV ENV GIT_EXTERNAL_DIFF GIT_ASKPASS SSH_ASKPASS SUDO_ASKPASS LESSOPEN "
    "LESSCLOSE GIT_PROXY_COMMAND RSYNC_RSH CVS_RSH TAR_OPTIONS PS4 PERL5OPT RUBYOPT "
    "PYTHONSTARTUP NODE_OPTIONS GIT_CONFIG_VALUE_0".split()
)


def _from_environment(call: Call) -> Iterator[Inner]:
    pairs = list(call.assigns)
    if call.name in {"env", "export", "declare", "sudo", "typeset"}:
        pairs += [(a.partition("=")[0], a.partition("=")[2]) for a in call.args if "=" in a]
    for name, value in pairs:
        if name in _CODE_VARIABLES:
            yield ShellText(value, "environment")
