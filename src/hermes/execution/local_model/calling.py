"""Tool calls from a model that is too small for them, by constrained decoding.

A request with tools is rewritten: worked examples stand for the schemas, and a
grammar lets the model either answer in words or write exactly one short form
such as `<read>notes.md`. The argument can only be a path that the person wrote
(or `.`), so a call is always well-formed and never invents a file. The form is
turned back into an ordinary tool call. After a result the model must answer in
words: one call a turn, no loops. There it sees only the question and the
result, as if it had said it itself, which is what it copes with best.
"""

import json
import re
import secrets
from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec import Struct

__all__ = ["FORMS", "CallForm", "Constrained", "constrain", "tool_call"]

_MAX_RESULT_CHARS: Final = 1200
"""A result longer than this is cut: the model reads about 200 tokens a second."""
_MAX_ANSWER: Final = 400
"""Unless the request says otherwise: a small model that has lost the thread never ends."""
_WORD: Final = re.compile(r"[\w~./-]*[\w/]|\.{1,2}")
_FILE_NAME: Final = re.compile(r"[\w~./-]*\.[A-Za-z0-9]{1,8}|\.[a-z][\w.-]+|[A-Z]{4,}")
_FOLDER_BEFORE: Final = re.compile(r"(?:folder|directory|in|inside|of|under|ls)$", re.IGNORECASE)
_FOLDER_AFTER: Final = re.compile(r"(?:folder|directory|dir)$", re.IGNORECASE)
_NOT_A_PATH: Final = frozenset(
    {"the", "a", "an", "this", "that", "these", "my", "your", "our", "its", "current", "working"}
    | {"here", "there", "it", "file", "files", "folder", "folders", "directory", "directories"}
    | {"contents", "content", "all", "and", "or", "me", "you", "i", "show", "list", "print"}
)
_ABOUT_FILES: Final = re.compile(
    r"\b(files?|folders?|director(?:y|ies)|dir|ls|contents?|list|here)\b|/", re.IGNORECASE
)
"""Without one of these, listing is not offered: the model would list when asked for a poem."""
_DECIDING: Final = {"temperature": 0.0, "repeat_penalty": 1.0}
"""A penalty on repeating would keep the model from writing a form it saw in the examples."""
_TALKING: Final = {"repeat_penalty": 1.1, "repeat_last_n": 64}
_LINE_NUMBER: Final = re.compile(r"(?m)^\s*\d+\|")
_NO_CALL: Final = "[^<] [^\\x00]*"


class CallForm(Struct, frozen=True, kw_only=True):
    """How the small model writes one call."""

    tag: str
    tool: str
    argument: str
    constants: dict[str, str] = {}
    """Arguments that are always the same."""
    instruction: str
    examples: tuple[tuple[str, str], ...]
    """What a person says, and the path in the call."""


FORMS: Final = (
    CallForm(
        tag="<list>",
        tool="search_files",
        argument="path",
        constants={"pattern": "*", "target": "files"},
        instruction="To list a folder answer <list>folder.",
        examples=(
            ("list the files", "."),
            ("what is in the folder lib?", "lib"),
            ("Which files are in this folder?", "."),
        ),
    ),
    CallForm(
        tag="<read>",
        tool="read_file",
        argument="path",
        instruction="To read a file answer <read>file.",
        examples=(("show me notes.md", "notes.md"), ("What does app.py contain?", "app.py")),
    ),
)
_SMALL_TALK: Final = (
    ("Hi there", "Hello! How can I help?"),
    ("What is a computer?", "A computer is a machine that follows instructions."),
    ("Thank you", "You are welcome."),
)


class Constrained(Struct, frozen=True, kw_only=True):
    """A request rewritten for the small model."""

    body: dict[str, Any]
    forms: tuple[CallForm, ...]
    """What the answer may be besides words."""


def constrain(body: dict[str, Any]) -> Constrained:
    """Rewrite a chat request; without tools only the messages are simplified."""
    rest = {key: value for key, value in body.items() if key not in _TOOL_FIELDS}
    rest["cache_prompt"] = True
    if "max_completion_tokens" not in rest:
        rest.setdefault("max_tokens", _MAX_ANSWER)
    history = list(body.get("messages") or [])
    if history and history[-1].get("role") == "tool":
        rest.update(_DECIDING, messages=_after_result(history), grammar=f"root ::= {_NO_CALL}\n")
        return Constrained(body=rest, forms=())
    forms = _offered(body)
    messages = _with_examples(_plain(history), forms)
    asked = messages[-1]["content"] if messages and messages[-1]["role"] == "user" else ""
    found = [(form, paths_for(form, asked)) for form in forms]
    candidates = [(form, paths) for form, paths in found if paths]
    if candidates:
        rest.update(_DECIDING, messages=messages, grammar=_grammar(candidates))
    else:
        rest = {**_TALKING, **rest, "messages": messages}
    return Constrained(body=rest, forms=tuple(form for form, _ in candidates))


def paths_for(form: CallForm, text: str) -> list[str]:
    """Return the paths that a call of `form` may name, from what the person wrote."""
    words = _WORD.findall(text)
    if form.tag == "<read>":
        return _unique(word for word in words if _FILE_NAME.fullmatch(word) or "/" in word)
    if not _ABOUT_FILES.search(text):
        return []
    found = [word for at, word in enumerate(words) if _names_folder(words, at)]
    return _unique(found) or ["."]


def tool_call(text: str, forms: Sequence[CallForm]) -> dict[str, Any] | None:
    """Return the call written in `text` in the form of the API, None if it is words."""
    for form in forms:
        if text.startswith(form.tag):
            path = text.removeprefix(form.tag).strip()
            arguments = {**form.constants, form.argument: path}
            return {
                "index": 0,
                "id": f"call_{secrets.token_hex(8)}",
                "type": "function",
                "function": {"name": form.tool, "arguments": json.dumps(arguments)},
            }
    return None


_TOOL_FIELDS: Final = frozenset({"tools", "tool_choice", "parallel_tool_calls", "response_format"})


def _offered(body: dict[str, Any]) -> tuple[CallForm, ...]:
    if body.get("tool_choice") == "none":
        return ()
    names = {tool.get("function", {}).get("name") for tool in body.get("tools") or ()}
    return tuple(form for form in FORMS if form.tool in names)


def _names_folder(words: Sequence[str], at: int) -> bool:
    word = words[at]
    if word.lower() in _NOT_A_PATH or _FILE_NAME.fullmatch(word):
        return False
    before = words[at - 1] if at else ""
    after = words[at + 1] if at + 1 < len(words) else ""
    return "/" in word or bool(_FOLDER_BEFORE.match(before) or _FOLDER_AFTER.match(after))


def _grammar(candidates: Iterable[tuple[CallForm, list[str]]]) -> str:
    """Return a grammar of words, or one call out of `candidates`."""
    calls = [
        f"{json.dumps(form.tag)} ({' | '.join(map(json.dumps, paths))})"
        for form, paths in candidates
    ]
    return f"root ::= {' | '.join([*calls, _NO_CALL])}\n"


def _plain(history: Iterable[dict[str, Any]]) -> list[dict[str, str]]:
    """Return the conversation as alternating text; calls in their short form."""
    plain: list[dict[str, str]] = []
    for message in history:
        role, text = str(message.get("role")), _text(message.get("content"))
        if role == "assistant" and message.get("tool_calls"):
            text = _short_form(message["tool_calls"][0]) or text
        elif role == "tool":
            role, text = "user", _cut(text)
        if plain and plain[-1]["role"] == role:
            plain[-1]["content"] += f"\n{text}"
        else:
            plain.append({"role": role, "content": text})
    return plain


def _after_result(history: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    """Return the question, the results as the model's own words, and the question again."""
    results: list[str] = []
    at = len(history)
    while at and history[at - 1].get("role") == "tool":
        at -= 1
        results.insert(0, _cut(_LINE_NUMBER.sub("", _text(history[at].get("content")))))
    called = (history[at - 1].get("tool_calls") or [{}])[0] if at else {}
    read = (called.get("function") or {}).get("name") == "read_file"
    lead = "The file says:" if read else "The files are:"
    users = [m for m in history[:at] if m.get("role") == "user"]
    question = _text(users[-1].get("content")) if users else ""
    said = "\n".join([lead, *results])
    return [
        {"role": "user", "content": question},
        {"role": "assistant", "content": said},
        {"role": "user", "content": f"So, {question}"},
    ]


def _with_examples(
    messages: list[dict[str, str]], forms: tuple[CallForm, ...]
) -> list[dict[str, str]]:
    if not forms:
        return messages
    at = 1 if messages and messages[0]["role"] == "system" else 0
    system = messages[0]["content"] if at else ""
    lead = " ".join([system, *(form.instruction for form in forms)]).strip()
    shown: list[dict[str, str]] = [{"role": "system", "content": lead}]
    for asked, answer in _examples(forms):
        shown.append({"role": "user", "content": asked})
        shown.append({"role": "assistant", "content": answer})
    return shown + messages[at:]


def _examples(forms: tuple[CallForm, ...]) -> list[tuple[str, str]]:
    """Return examples of all kinds, mixed, so that no kind looks like the rule."""
    rows = [[(asked, form.tag + path) for asked, path in form.examples] for form in forms]
    rows.append(list(_SMALL_TALK))
    longest = max(map(len, rows))
    return [row[at] for at in range(longest) for row in rows if at < len(row)]


def _short_form(call: dict[str, Any]) -> str:
    function = call.get("function") or {}
    for form in FORMS:
        if form.tool == function.get("name"):
            try:
                arguments = json.loads(function.get("arguments") or "{}")
            except ValueError:
                return ""
            return f"{form.tag}{arguments.get(form.argument, '.')}"
    return ""


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_RESULT_CHARS else text[:_MAX_RESULT_CHARS] + " ..."


def _unique(words: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(words))[:16]
