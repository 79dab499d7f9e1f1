"""Whether a command that the walls have stopped may run once more as a whole, on the host.

Only if it is one command: of several the first have had their effect, and would have it twice,
or would fail where they had worked and keep the others from running at all.
"""

import re

from hermes.execution.policy.grammar import parse
from hermes.execution.policy.syntax import (
    Lit,
    Param,
    Part,
    Pipeline,
    ShellSyntaxError,
    Simple,
    Word,
)

_LONGEST = 2000
"""Characters; what takes longer to read is taken for several."""
_FILTERS = frozenset(["cat", "cut", "grep", "head", "nl", "sort", "tail", "tr", "uniq", "wc"])
"""What only passes on, or counts, what comes through a pipe."""
_SHELLS = frozenset(["ash", "bash", "dash", "fish", "ksh", "sh", "zsh"])
"""What runs a text if an option says so, otherwise a file."""
_MANY = frozenset(["eval", "parallel", "xargs"])
"""What puts commands together."""
_CODE = re.compile(r"[;&|\n]|system|exec|spawn|popen|subprocess")
"""What a word has in it that may be several commands."""
_READS = frozenset(["source", "."])
"""What runs all commands of a file here."""
_APPENDS = frozenset({">>", "&>>"})


def is_one_command(text: str) -> bool:
    """Tell whether a command does one thing, apart from where it does it and what it shows."""
    if len(text) > _LONGEST:
        return False
    try:
        items = parse(text).items
    except (ShellSyntaxError, RecursionError):
        return False
    return bool(items) and all(map(_goes_there, items[:-1])) and _is_one(items[-1])


def _goes_there(item: Pipeline) -> bool:
    """Tell whether this is a `cd` that leads to the same place wherever it is done."""
    words = _simple_words(item)
    return len(words) == 2 and words[0] == "cd" and words[1].startswith(("/", "~"))


def _is_one(item: Pipeline) -> bool:
    nodes = [node for node in item.commands if isinstance(node, Simple) and _is_plain(node)]
    if item.background or item.negated or len(nodes) < len(item.commands):
        return False
    if any(redirect.op.startswith("<<") for node in nodes for redirect in node.redirects):
        return False  # it may be a script
    first, *rest = ([_text(word) for word in node.words] for node in nodes)
    passed_on = all(words and words[0] in _FILTERS for words in rest)
    return bool(first) and passed_on and not _runs_text(first)


def _simple_words(item: Pipeline) -> list[str]:
    """Return the words of a pipeline of a single command that is nothing but words."""
    node = item.commands[0] if len(item.commands) == 1 else None
    if not isinstance(node, Simple) or node.assigns or node.redirects or item.background:
        return []
    return [_text(word) for word in node.words] if _is_plain(node) else []


def _is_plain(node: Simple) -> bool:
    """Tell whether nothing else runs in it, and nothing is added to what it has written."""
    words = [*node.words, *(each.value for each in node.assigns)]
    words += [each.word for each in node.redirects]
    return all(map(_stands, words)) and not any(r.op in _APPENDS for r in node.redirects)


def _stands(word: Word) -> bool:
    def runs_nothing(part: Part) -> bool:
        return isinstance(part, Lit) or (
            isinstance(part, Param) and (part.arg is None or _stands(part.arg))
        )

    return all(map(runs_nothing, word.parts))


def _runs_text(words: list[str]) -> bool:
    """Tell whether what it runs is in its words or its input, and may be several commands."""
    names = [word.rpartition("/")[2] for word in words]
    options = (word.startswith(("-", "+")) for word in (*words[1:], ""))
    texts = (name in _SHELLS and given for name, given in zip(names, options, strict=True))
    if names[0] in _READS or not _MANY.isdisjoint(names):
        return True
    return any(texts) or any(map(_CODE.search, words))


def _text(word: Word) -> str:
    return "".join(part.text if isinstance(part, Lit) else "$" for part in word.parts)
