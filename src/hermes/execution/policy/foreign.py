"""Code and settings from elsewhere: what a program runs, loads, installs or obeys.

The project, the tools of the system and of the home are known places for code; `/tmp`, other
folders of the home and other homes are where anybody may have put something, and so is a
directory that nobody knows.
"""

import re
from collections.abc import Iterator

from hermes.execution.policy.code import language_of
from hermes.execution.policy.command import (
    TABLES,
    Finding,
    Ground,
    ShellCommand,
    listed,
    pattern,
    words,
)
from hermes.execution.policy.places import (
    A_HOME,
    GLUED,
    READERS,
    VIEWERS,
    in_project,
    is_beside,
)

_CONTAINERS = words("docker podman nerdctl kubectl oc docker-compose")
_TALKERS = words("git gh glab")
_ANYBODYS = re.compile(r"/(?:tmp|var/tmp|dev/shm|media|mnt|srv|run/user)(?:/|$)")
_OF_TOOLS = (".", "bin/", "go/", "miniconda3/", "anaconda3/")
"""Folders of a home from which programs come; `.cache` holds what was fetched."""
_CODE_TOOLS = listed("code-tools")
_OBEYS_HERE = listed("obeys-here")
_INSTALLS = words(
    "install i in it install-test add update upgrade run restore build shell init plugin tool pub"
)
_FROM_ADDRESS = re.compile(r"(?!--registry)(?:git\+|github:|\S*://(?!localhost|127\.))")
_SHOWN = (READERS | VIEWERS) - listed("blind")
_DESCRIBED = listed("programs") - VIEWERS - listed("readers") - listed("blind") - _CODE_TOOLS
_DESCRIBED -= TABLES["targets"].keys() | TABLES["interpreters"].keys() | listed("text-tools")
_DESCRIBED -= {"venv", "virtualenv", "python3"}
_WORKERS = _CODE_TOOLS - READERS - VIEWERS - {"pip", "pip3"}
_OBEYED_OPTION = re.compile(r"-[cri]$|--?(?:config|plugin|require)")
_INSTALLERS = TABLES["verbs"].keys() - _CONTAINERS - _TALKERS
_BEGINS = words("npm pnpm yarn bun cargo go uv poetry terraform tofu dotnet composer mix")
_OUTPUT_OPTIONS = pattern("output-options")
_SETTINGS_OPTION = re.compile(r"config|reporter|plugin|formatter|build-file")


def check(command: ShellCommand, ground: Ground) -> Iterator[Finding]:
    yield from _obeys(command, ground)
    yield from _loads(command, ground)


def _obeys(command: ShellCommand, ground: Ground) -> Iterator[Finding]:
    """Yield findings for a program that obeys or shows what is where it runs."""
    name = command.name
    composes = name in _CONTAINERS and {"compose", "build"} & {*command.operands()[:1]}
    module = bool(language_of(name)) and "-m" in command.args and "venv" not in command.args
    obeys = bool(composes) or module or name in _OBEYS_HERE | _CODE_TOOLS | _DESCRIBED
    lost = None in command.cwds and ground.cwd is not None and not command.remote
    if obeys and (lost or _obeys_elsewhere(command, ground)):
        yield Finding("it obeys what is in a place outside of the project", "load outside")
    if lost and any(o[:1] not in {"/", "~"} for o in command.operands()) and name in _SHOWN:
        yield Finding("nobody can tell which files it shows", "read computed")


def _loads(command: ShellCommand, ground: Ground) -> Iterator[Finding]:
    """Yield findings for code or settings from elsewhere that a program runs or installs."""
    name, verbs = command.name, command.operands()[:2]
    if _INSTALLS & {*verbs} and name in _INSTALLERS:
        for word in command.args[1:]:
            if _FROM_ADDRESS.match(word) or is_foreign(word, command, ground):
                yield Finding(f"it installs or runs {word} from elsewhere", "install url")
    absolutes = [o for o in command.operands() if o[:1] in {"/", "~"}] if name in _WORKERS else []
    if any(is_foreign(o, command, ground) for o in absolutes):
        yield Finding("it works on what is outside of the project", "load outside")
    ran = verbs if name in {"yarn", "pnpm", "bun", "npx", "npm"} else []
    runs = bool(_CODE_TOOLS & {name, *ran}) or bool(language_of(name))
    for option, value in _settings(command.args) if runs or name in _DESCRIBED else ():
        output = _OUTPUT_OPTIONS.match(option) and not _SETTINGS_OPTION.search(option)
        loads = not output if runs else _OBEYED_OPTION.match(option)
        if loads and is_foreign(value, command, ground):
            yield Finding(f"it loads {value} from outside of the project", "load outside")


def _obeys_elsewhere(command: ShellCommand, ground: Ground) -> bool:
    """Return whether a program works where anybody may have put something for it to obey."""
    begins = {"init", "new", "create"} & {*command.operands()[:1]} and command.name in _BEGINS
    here = (".", *command.values_of("--prefix", "--dir", "--cwd", "--project-directory"))
    places = [p for p in here if is_foreign(p, command, ground)]
    beside = all(is_beside(c, ground) for p in places for c in command.where(p))
    return not begins and ground.project is not None and bool(places) and not beside


def _settings(args: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield options and variables with the values that they may have."""
    for arg, following in zip(args, (*args[1:], "-"), strict=False):
        name, equals, value = arg.partition("=")
        glued = GLUED.match(arg)
        if glued is not None:
            yield glued.group(), arg[glued.end() :]
        elif equals:
            yield name.removeprefix("-D"), value
            yield name, value.rpartition("=")[2]
        elif arg[:1] == "-" and following[:1] != "-":
            yield name, following


def is_foreign(path: str, command: ShellCommand, ground: Ground) -> bool:
    """Return whether a path is where anybody may have put something: no project, no tools."""
    if not path.startswith(("/", "~", ".")) and "/../" not in path:
        return False
    return any(
        clean in {"/", ".."}
        or clean.startswith("../")
        or _ANYBODYS.match(clean)
        or _of_others(clean, ground)
        or any(_in_open(clean, home) for home in ground.user_homes)
        for clean in command.where(path)
        if not in_project(clean, ground)
    )


def _of_others(clean: str, ground: Ground) -> bool:
    homes = tuple(f"{home}/" for home in ground.user_homes)
    return A_HOME.match(clean) is not None and not f"{clean}/".startswith(homes)


def _in_open(clean: str, home: str) -> bool:
    inner = clean[len(home) + 1 :]
    tools = inner.startswith(_OF_TOOLS) and not inner.startswith(".cache/")
    return clean.startswith(f"{home}/") and not tools
