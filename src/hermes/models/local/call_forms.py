"""Tool calls from a model that is too small for them, by constrained decoding.

A request with tools is rewritten before it goes to the engine: worked examples
stand for the schemas, and a grammar lets the model either answer in words or
write exactly one short form such as `<read>notes.md`. The argument can only be
a path that the person wrote (or `.`), so a call is always well-formed and never
invents a file. `called` turns the form back into an ordinary tool call, and
`HiddenForms` keeps it out of the text a listener hears. After a result the
model must answer in words: one call a turn, no loops. There it sees only the
question and the result, as if it had said it itself, which is what it copes
with best.
"""

import json
import re
import secrets
from collections.abc import Iterable, Sequence
from itertools import chain, takewhile, zip_longest
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from hermes.domain.messages import (
    AssistantMessage,
    FinishReason,
    Message,
    ToolCall,
    ToolMessage,
    UserMessage,
    content_text,
)
from hermes.domain.ports.model import CallListener, ModelRequest

_MAX_RESULT_CHARS: Final = 1200
"""A result longer than this is cut: the model reads about 200 tokens a second."""
_WORD: Final = re.compile(r"[\w~./-]*[\w/]|\.{1,2}")
_FILE_NAME: Final = re.compile(r"[\w~./-]*\.[A-Za-z0-9]{1,8}|\.[a-z][\w.-]+|[A-Z]{4,}")
_FOLDER_BEFORE: Final = re.compile(r"(?:folder|directory|in|inside|of|under|ls)$", re.IGNORECASE)
_FOLDER_AFTER: Final = re.compile(r"(?:folder|directory|dir)$", re.IGNORECASE)
_NOT_A_PATH: Final = re.compile(
    r"the|an?|this|that|these|my|your|our|its|current|working|here|there|it|files?|folders?"
    r"|director(?:y|ies)|contents?|all|and|or|me|you|i|show|list|print",
    re.IGNORECASE,
)
_ABOUT_FILES: Final = re.compile(
    r"\b(files?|folders?|director(?:y|ies)|dir|ls|contents?|list|here)\b|/", re.IGNORECASE
)
"""Without one of these, listing is not offered: the model would list when asked for a poem."""
_LINE_NUMBER: Final = re.compile(r"(?m)^\s*\d+\|")
_WORDS: Final = "[^<] [^\\x00]*"
_TALKING: Final = {"repeat_penalty": 1.1, "repeat_last_n": 64}
_DECIDING: Final = {"repeat_penalty": 1.0}
"""A penalty on repeating would keep the model from writing a form it saw in the examples."""


class CallForm(Struct, frozen=True, kw_only=True):
    """How the small model writes one call: the tag and a path."""

    tag: str
    tool: str
    constants: dict[str, str] = {}
    """Arguments that are always the same."""
    instruction: str
    examples: tuple[tuple[str, str], ...]
    """What a person says, and the path in the call."""


FORMS: Final = (
    CallForm(
        tag="<list>",
        tool="search_files",
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
    request: ModelRequest
    options: dict[str, Any]
    """More fields for the engine's request: its grammar and sampling."""
    forms: tuple[CallForm, ...] = ()
    """What the answer may be besides words."""


def constrain(request: ModelRequest) -> Constrained:
    """Rewrite a request; without tools only the messages are simplified."""
    bare = replace(
        request, tools=(), tool_choice=None, response_schema=None, ephemeral="", session_id=None
    )
    history = request.messages
    if history and isinstance(history[-1], ToolMessage):
        after = replace(bare, system="", messages=_after_result(history), temperature=0.0)
        return Constrained(request=after, options={**_DECIDING, "grammar": f"root ::= {_WORDS}\n"})
    forms = _offered(request)
    rows = _plain(history)
    asked = _text(rows[-1]) if rows and isinstance(rows[-1], UserMessage) else ""
    bare = replace(
        bare,
        system=" ".join([request.system, *(form.instruction for form in forms)]).strip(),
        messages=(*_examples(forms), *rows),
    )
    candidates = [(form, paths) for form in forms if (paths := paths_for(form, asked))]
    if not candidates:
        return Constrained(request=bare, options=_TALKING)
    return Constrained(
        request=replace(bare, temperature=0.0),
        options={**_DECIDING, "grammar": _grammar(candidates)},
        forms=tuple(form for form, _ in candidates),
    )


def paths_for(form: CallForm, text: str) -> list[str]:
    """Return the paths that a call of `form` may name, from what the person wrote."""
    words = _WORD.findall(text)
    if form.tag == "<read>":
        return _unique(word for word in words if _FILE_NAME.fullmatch(word) or "/" in word)
    if not _ABOUT_FILES.search(text):
        return []
    return _unique(word for at, word in enumerate(words) if _names_folder(words, at)) or ["."]


def called(message: AssistantMessage, forms: Sequence[CallForm]) -> AssistantMessage:
    """Return the answer with a form that it wrote turned into a tool call."""
    for form in forms:
        if message.text.startswith(form.tag):
            path = message.text.removeprefix(form.tag).strip()
            call = ToolCall(
                id=f"call_{secrets.token_hex(8)}",
                name=form.tool,
                arguments=json.dumps({**form.constants, "path": path}),
            )
            return AssistantMessage(tool_calls=(call,), finish=FinishReason.TOOL_CALLS)
    return message


class HiddenForms:
    """Passes words on to a listener at once, and forms never."""

    def __init__(self, listener: CallListener) -> None:
        self._listener = listener
        self.on_reasoning = listener.on_reasoning
        self.on_notice = listener.on_notice
        self._hiding: bool | None = None

    def on_text(self, text: str) -> None:
        if self._hiding is None and text:
            self._hiding = text.startswith("<")
        if not self._hiding:
            self._listener.on_text(text)

    def on_restart(self) -> None:
        self._hiding = None
        self._listener.on_restart()


def _offered(request: ModelRequest) -> tuple[CallForm, ...]:
    names = {spec.name for spec in request.tools} if request.tool_choice != "none" else set()
    return tuple(form for form in FORMS if form.tool in names)


def _names_folder(words: Sequence[str], at: int) -> bool:
    word = words[at]
    if _NOT_A_PATH.fullmatch(word) or _FILE_NAME.fullmatch(word):
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
    return f"root ::= {' | '.join([*calls, _WORDS])}\n"


def _plain(history: Iterable[Message]) -> list[Message]:
    """Return the conversation as alternating text; calls in their short form."""
    rows: list[Message] = []
    for message in history:
        assistant = isinstance(message, AssistantMessage)
        text = _text(message)
        if rows and isinstance(rows[-1], AssistantMessage) == assistant:
            text = f"{_text(rows.pop())}\n{text}"
        rows.append(AssistantMessage(text=text) if assistant else UserMessage(content=text))
    return rows


def _text(message: Message) -> str:
    if isinstance(message, AssistantMessage):
        return next(filter(None, map(_short_form, message.tool_calls)), message.text)
    text = content_text(message.content)
    return _cut(text) if isinstance(message, ToolMessage) else text


def _short_form(call: ToolCall) -> str:
    tag = next((form.tag for form in FORMS if form.tool == call.name), "")
    try:
        return tag and f"{tag}{json.loads(call.arguments or '{}').get('path', '.')}"
    except (ValueError, AttributeError):
        return ""


def _after_result(history: Sequence[Message]) -> tuple[Message, ...]:
    """Return the question, the results as the model's own words, and the question again."""
    last = takewhile(lambda message: isinstance(message, ToolMessage), reversed(history))
    results = [message for message in last if isinstance(message, ToolMessage)]
    read = results[-1].name == "read_file"
    said = [_cut(_LINE_NUMBER.sub("", _text(each))) for each in reversed(results)]
    asked = [_text(message) for message in history if isinstance(message, UserMessage)]
    question = asked[-1] if asked else ""
    return (
        UserMessage(content=question),
        AssistantMessage(text="\n".join(["The file says:" if read else "The files are:", *said])),
        UserMessage(content=f"So, {question}"),
    )


def _examples(forms: tuple[CallForm, ...]) -> list[Message]:
    kinds = [[(asked, form.tag + path) for asked, path in form.examples] for form in forms]
    mixed = zip_longest(*kinds, _SMALL_TALK) if kinds else ()
    pairs = [pair for group in mixed for pair in group if pair]
    shown = [(UserMessage(content=asked), AssistantMessage(text=said)) for asked, said in pairs]
    return list(chain.from_iterable(shown))


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_RESULT_CHARS else text[:_MAX_RESULT_CHARS] + " ..."


def _unique(words: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(words))[:16]
