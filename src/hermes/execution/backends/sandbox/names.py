"""Names of what the host runs later without being asked to run the project.

A name is here if a tool of the person obeys it on its own: git when they commit, a shell when
they enter a folder, an editor when it opens one, a debugger or another agent when it starts, CI
when they push. Code and settings of tools that run the project anyway are not (`package.json`,
`Makefile`, `.npmrc`, `.cargo/config.toml`), nor is text that an agent reads (`AGENTS.md`): they
are what the work is about.

Files that choose versions may be written as long as they choose: asdf, uv and rustup also
take the path of a program in them.
"""

import re
from collections.abc import Sequence
from itertools import pairwise, product

from hermes.execution.backends.sandbox.settings import are_harmless

_OF_HOOKS = """
    .husky .huskyrc .huskyrc.json .huskyrc.js .pre-commit-config.yaml .pre-commit-config.yml
    prek.toml .lefthook .lefthook-local .overcommit.yml captainhook.json grumphp.yml
    grumphp.yml.dist .simple-git-hooks.json .simple-git-hooks.js .hg/hgrc .jj .sl .pijul/config
    _darcs/prefs/defaults HEAD
"""
"""With a `HEAD` the project itself would be a repository without a work tree, and its settings
would count."""
_LEFTHOOK = product(("", ".", ".config/"), ("", "-local"), ("yml", "yaml", "toml", "json", "jsonc"))
_OF_SHELLS = """
    .envrc .envrc.local .envrc.private .autoenv .autoenv.leave .autoenv.zsh .autoenv_leave.zsh
    .rvmrc .rbenv-vars .shadowenv.d .mise.toml mise.toml .mise .miserc.toml .config/mise
    .config/mise.toml mise/config.toml mise/config.local.toml
"""
_OF_EDITORS = """
    .vscode .vs .theia .idea .run .fleet .zed .helix .nova .kateproject .lite_project.lua .project
    .settings .factorypath .cproject .externalToolBuilders .devcontainer .devcontainer.json .idx
    .codesandbox .gitpod.yml .vim .vimrc .gvimrc .exrc .nvimrc .nvim.lua .lazy.lua .lvimrc
    .local.vimrc .vimrc.local .ycm_extra_conf.py .dir-locals.el .dir-locals-2.el .merlin hie.yaml
"""
_OF_PROGRAMS = """
    .gdbinit .lldbinit .pdbrc .perldb .irbrc .pryrc .ghci .iex.exs .ocamlinit .octaverc .Rprofile
    .Renviron .RData renv/activate.R .pnpmfile.cjs startup.m finish.m .lazygit.yml
    .gh-dash.yml .gh-dash.yaml
"""
_OF_AGENTS = """
    .mcp.json .claude .codex .cursor .windsurf .gemini .qwen .cline .clinerules/hooks .roo .kilocode
    .continue .continuerc.json .aider.conf.yml .aider.model.settings.yml .opencode opencode.json
    opencode.jsonc .crush crush.json .crush.json .kiro .amazonq .junie .factory .trae .amp .augment
    .openhands .tabnine .vibe .grok .pi .codebuddy .qoder .iflow firebender.json .agents/plugins
"""
"""Settings with hooks, servers to start, or addresses that a key is sent to."""
_OF_CI = """
    .github .gitlab .gitlab-ci.yml .gitea .forgejo .circleci .cirrus.yml .travis.yml .drone.yml
    .drone.yaml .buildkite .woodpecker .woodpecker.yml .woodpecker.yaml Jenkinsfile
    azure-pipelines.yml azure-pipelines.yaml .azure-pipelines .build.yml .builds
    bitbucket-pipelines.yml appveyor.yml .appveyor.yml cloudbuild.yaml cloudbuild.yml buildspec.yml
    .semaphore .teamcity codemagic.yaml .tekton bitrise.yml
"""
GUARDED = (
    *f"{_OF_HOOKS} {_OF_SHELLS} {_OF_EDITORS} {_OF_PROGRAMS} {_OF_AGENTS} {_OF_CI}".split(),
    *(f"{where}lefthook{local}.{ending}" for where, local, ending in _LEFTHOOK),
)
_OF_A_PATTERN = (
    r"[.]?mise[.][A-Za-z0-9_.-]+[.]toml|[^/]*[.](code-workspace|sublime-project)"
    r"|(flake|nix)-profile-[^/]*[.]rc"
)
_ANYWHERE = frozenset(name for name in GUARDED if "/" not in name) | {".git"}
_IN_A_FOLDER = frozenset(name for name in GUARDED if name.count("/") == 1)
FOLDERS = frozenset(name.partition("/")[0] for name in _IN_A_FOLDER)
"""Folders in which a name counts that does not count elsewhere."""
_TOOLCHAIN = re.compile(r"\s*#.*|(?!.*(?:path|[/\\])).*")
_PYTHON = re.compile(r"\s*#.*|[^/\\]*|\s*[\w.+-]+/envs/[\w.+-]+\s*")
CHOOSING = {
    ".tool-versions": re.compile(r"(?!.*(?:path:|\{[{%])).*"),
    ".python-version": _PYTHON,
    ".python-versions": _PYTHON,
    "rust-toolchain": _TOOLCHAIN,
    "rust-toolchain.toml": _TOOLCHAIN,
}
"""Files that choose versions, and the lines in them that do no more."""


def is_named(folder: str, name: str) -> bool:
    """Tell whether what has this name, in a folder of that name, is obeyed; git's own too."""
    if name in _ANYWHERE or (folder in FOLDERS and f"{folder}/{name}" in _IN_A_FOLDER):
        return True
    return is_of_a_pattern(name)


def is_of_a_pattern(name: str) -> bool:
    return re.fullmatch(_OF_A_PATTERN, name) is not None


def expression() -> str:
    """Return what `grep -E` finds the paths of things with that are obeyed."""
    plain = "|".join(re.escape(name).replace("\\-", "-") for name in GUARDED)
    return f"(^|/)({plain}|{_OF_A_PATTERN})(/|$)"


def leads_to_one(parts: Sequence[str]) -> bool:
    """Tell whether a path in a project is that of a thing which is obeyed, or in one."""
    return any(is_named(folder, name) for folder, name in pairwise(("", *parts)))


def names_in(folder: str) -> frozenset[str]:
    """Return the names that count in a folder of that name, apart from patterns."""
    own = (name.partition("/") for name in _IN_A_FOLDER)
    return _ANYWHERE | CHOOSING.keys() | {name for above, _, name in own if above == folder}


def chooses_only(name: str, content: bytes, known: bytes = b"") -> bool:
    """Tell whether a file that chooses versions does no more; lines `known` before may be in it."""
    usual = set(known.decode("utf-8", "replace").splitlines())
    lines = set(content.decode("utf-8", "replace").splitlines())
    return are_harmless(lines - usual, CHOOSING[name])
