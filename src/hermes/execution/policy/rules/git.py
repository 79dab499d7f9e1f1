"""Git commands that throw work away or rewrite what others have."""

import re
from collections.abc import Iterator

from hermes.execution.policy.calls import Call, Danger, Ground, make_call
from hermes.execution.policy.rules.shapes import Shape, Shapes

__all__ = ["check"]

_SHAPES = Shapes(
    "git",
    (
        Shape(
            "git",
            r"^reset\s(?:.*\s)?--(?:h|ha|har|hard|me|mer|merge|k|keep)\b",
            "it throws uncommitted work away",
            "git reset --hard",
        ),
        Shape(
            "git",
            r"^push\s(?:.*\s)?(?:--for\S*|--mirror|--prune|--delete|-[a-zA-Z]*[fd][a-zA-Z]*\b|"
            r"\+\S|:\S)",
            "it overwrites or deletes what is on the server",
            "git push --force",
        ),
        Shape(
            "git",
            r"^clean\s(?:.*\s)?(?:-[a-zA-Z]*f|--f)",
            "it deletes untracked files",
            "git clean -f",
        ),
        Shape(
            "git",
            r"^branch\s(?:.*\s)?(?:-[a-zA-Z]*D|-d\s+-f|--delete\s+--force|-[a-zA-Z]*f|--force)",
            "it deletes or moves a branch that is not merged",
            "git branch -D",
        ),
        Shape(
            "git",
            r"^checkout\s(?:.*\s)?(?:-[a-zA-Z]*f\b|--force\b|--\s|\.(?:\s|$)|:/)",
            "it throws uncommitted work away",
            "git checkout --",
        ),
        Shape(
            "git",
            r"^restore\s(?!.*--staged)(?:.*\s)?\S",
            "it throws uncommitted work away",
            "git restore",
        ),
        Shape(
            "git",
            r"^switch\s(?:.*\s)?(?:-f|--force|--discard-changes|-C)\b",
            "it throws uncommitted work away",
            "git switch --force",
        ),
        Shape("git", r"^stash\s+(?:drop|clear)\b", "it deletes stashed work", "git stash drop"),
        Shape(
            "git", r"^(?:filter-branch|filter-repo)\b", "it rewrites history", "git filter-branch"
        ),
        Shape(
            "git", r"^reflog\s+(?:expire|delete)\b", "it removes the way back", "git reflog expire"
        ),
        Shape("git", r"^gc\s(?:.*\s)?--prune=(?:now|all)", "it removes the way back", "git gc"),
        Shape("git", r"^update-ref\s(?:.*\s)?-d\b", "it deletes a reference", "git update-ref -d"),
        Shape("git", r"^worktree\s+remove\s.*(?:-f|--force)", "it deletes a working tree"),
        Shape("git", r"^rm\s(?:.*\s)?-[a-zA-Z]*[rf]", "it deletes files", "git rm -r"),
        Shape("git", r"^submodule\s+deinit\s.*(?:-f|--force|--all)", "it deletes files"),
        Shape(
            "git",
            r"^config\s(?:.*\s)?(?:core\.(?:hooksPath|pager|editor|sshCommand|fsmonitor|"
            r"attributesFile)|"
            r"alias\.\S+\s+!|credential\.|filter\.|diff\.\S*\.?(?:external|textconv)|include|url\.)"
            r"\S*\s+\S",
            "it changes what git runs",
            "git config",
        ),
        Shape(
            "git",
            r"^config\s(?:.*\s)?--(?:global|system)\s(?!(?:.*\s)?(?:--get|--list|-l\b|user\.|"
            r"init\.defaultBranch|pull\.|push\.|color\.))\S",
            "it changes git for the whole account",
            "git config --global",
        ),
        Shape(
            "git",
            r"^(?:clone|fetch|pull|ls-remote|submodule)\s(?:.*\s)?ext::",
            "the address is a command",
            "git ext::",
        ),
        Shape(
            "gh",
            r"^(?:repo\s+(?:delete|archive)|release\s+delete|secret\s+(?:set|delete)|"
            r"api\s.*-X\s*(?:DELETE|PUT|PATCH)|api\s.*--method\s+(?:DELETE|PUT|PATCH)|"
            r"auth\s+token)",
            "it deletes or changes what is on GitHub",
        ),
    ),
)
_VALUED = frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path"})
_RISKY_SETTING = re.compile(
    r"(?i)(?:core\.(?:pager|editor|sshcommand|hookspath|fsmonitor|askpass|gitproxy|"
    r"alternaterefs\w+)|"
    r"alias\.|sequence\.editor|diff\.|difftool|mergetool|merge\.|filter\.|credential\.|gpg\.|"
    r"protocol\.ext|uploadpack|receive|remote\.\S*\.(?:uploadpack|receivepack|proxy)|interactive\.|"
    r"pager\.|browser\.|man\.|web\.|include|url\.)"
)
_HARMLESS_VALUE = re.compile(r"(?:cat|less|more|true|false|vi|vim|nano|:|auto|never|always|)$")


def check(call: Call, _ground: Ground) -> Iterator[Danger]:
    """Yield dangers of git and GitHub commands."""
    if call.name == "gh":
        yield from _SHAPES.check(call)
        return
    if call.name != "git":
        return
    for setting in call.values_of("-c", "--config-env"):
        key, _, value = setting.partition("=")
        if _RISKY_SETTING.match(key) and not _HARMLESS_VALUE.match(value):
            yield Danger("git", "it changes what git runs", "git -c")
    yield from _SHAPES.check(_without_globals(call))


def _without_globals(call: Call) -> Call:
    """Return the call without the options that stand before the subcommand."""
    index = 0
    while index < len(call.args) and call.args[index].startswith("-"):
        index += 2 if call.args[index] in _VALUED else 1
    if not index:
        return call
    return make_call(["git", *call.args[index:]], call)
