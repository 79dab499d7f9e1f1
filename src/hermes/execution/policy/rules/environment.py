"""Variables that change what other commands do, and traces that are wiped."""

import re
from collections.abc import Iterator

from hermes.execution.policy.calls import Call, Danger, Ground
from hermes.execution.policy.targets import written_paths

__all__ = ["check"]

_LOADER = re.compile(
    r"(?:LD_PRELOAD|LD_LIBRARY_PATH|LD_AUDIT|DYLD_\w+|PYTHONSTARTUP|PYTHONINSPECT|PERL5OPT|"
    r"PERL5LIB|"
    r"RUBYOPT|BASH_ENV|ENV|PROMPT_COMMAND|IFS|GCONV_PATH|GIT_SSH|GIT_SSH_COMMAND|LESSOPEN|"
    r"GIT_EXTERNAL_DIFF|SHELLOPTS|BASHOPTS|PS4|BASH_FUNC_\S*|GIT_EXEC_PATH|GIT_CONFIG_\w+|"
    r"PIP_INDEX_URL|PIP_EXTRA_INDEX_URL|NODE_OPTIONS|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS|"
    r"HERMES_YOLO_MODE|HERMES_HOME|SUDO_ASKPASS|SSH_ASKPASS)$"
)
_HARMLESS_VALUES = {
    "NODE_OPTIONS": re.compile(r"(?!.*(?:--require|-r\s|--import|--loader|--eval)).*$"),
    "IFS": re.compile(r"\W{0,4}$"),
    "GIT_SSH_COMMAND": re.compile(r"ssh(?:\s+-[\w]\s*[\w./~=-]*)*$"),
    "LD_LIBRARY_PATH": re.compile(r"(?:/usr|/opt)/"),
    "PS4": re.compile(r"[^`$]*$"),
    "ENV": re.compile(r"(?:dev|development|prod|production|test|testing|staging|local|ci)$"),
}
_WRITABLE = re.compile(r"(?:^|:)(?:\.|/tmp|/var/tmp|/dev/shm|\./|\.\.|$|:)")
_LOGS = re.compile(
    r"(?:^|/)(?:\.\w*_history|\.lesshst|\.viminfo|fish_history)$|^/var/log/|^/var/(?:run/utmp|log)"
)


def check(call: Call, _ground: Ground) -> Iterator[Danger]:
    """Yield dangers of variables and of wiping history and logs."""
    yield from _variables(call)
    yield from _traces(call)


def _variables(call: Call) -> Iterator[Danger]:
    pairs = list(call.assigns)
    if call.name in {"env", "sudo", "export", "declare", "typeset", "local", "readonly"}:
        pairs += [(a.partition("=")[0], a.partition("=")[2]) for a in call.args if "=" in a]
    for name, value in pairs:
        if name == "PATH" and _WRITABLE.match(value):
            yield Danger("environment", "PATH would find programs in a writable place", "PATH=")
        elif _LOADER.match(name):
            harmless = _HARMLESS_VALUES.get(name)
            if harmless is None or not harmless.match(value):
                reason = f"{name} changes what other programs run"
                yield Danger("environment", reason, f"{name}=")


def _traces(call: Call) -> Iterator[Danger]:
    line = call.line
    if call.name == "history" and re.search(r"(?:^|\s)-[a-z]*[cdw]", line):
        yield Danger("traces", "it wipes the shell history", "history -c")
    elif (call.name in {"unset", "export", ":"} and _hides_history(call)) or (
        call.name == "set" and "+o history" in line
    ):
        yield Danger("traces", "it turns the shell history off", "HISTFILE=")
    elif call.name == "journalctl" and "--vacuum" in line:
        yield Danger("traces", "it deletes logs", "journalctl --vacuum")
    elif call.name in {"auditctl", "wevtutil", "Clear-EventLog"} and re.search(
        r"-D|-e\s*0|\bcl\b", line
    ):
        yield Danger("traces", "it turns auditing off or clears logs", call.name)
    elif call.name == "dmesg" and re.search(r"(?:^|\s)-[a-z]*[cC]|--clear", line):
        yield Danger("traces", "it clears the kernel log", "dmesg -C")
    for path in written_paths(call):
        if _LOGS.search(path):
            yield Danger("traces", "it changes logs or history", "write logs")


def _hides_history(call: Call) -> bool:
    if call.name == "unset":
        return bool({"HISTFILE", "HISTSIZE"} & set(call.args))
    pairs = [*call.assigns, *((a.partition("=")[0], a.partition("=")[2]) for a in call.args)]
    return any(
        (n == "HISTFILE" and v in {"", "/dev/null"})
        or (n in {"HISTSIZE", "HISTFILESIZE"} and v == "0")
        for n, v in pairs
    )
