"""The embedded model as a `Model`: served by a process of its own, started when needed.

Calls go to the engine's own port like those to any other local server. A very
small model calls tools by constrained decoding. Its request is rewritten before
it goes to the engine: worked examples stand for the schemas, and a grammar lets
the model either answer in words or write exactly one short form such as
`<read>notes.md`. The argument can only be a path that the person wrote (or `.`),
so a call is always well-formed and never invents a file. `called` turns the form
back into an ordinary tool call, and `HiddenForms` keeps it out of the text a
listener hears. After a result the model must answer in words: one call a turn,
no loops. There it sees only the question and the result, as if it had said it
itself, which is what it copes with best.
"""

import contextlib
import json
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from hermes.config.paths import HermesHome
from hermes.domain.messages import (
    AssistantMessage,
    FinishReason,
    Message,
    ToolCall,
    ToolMessage,
    UserMessage,
    content_text,
)
from hermes.domain.ports.model import CallListener, Model, ModelFailure, ModelReply, ModelRequest
from hermes.domain.tools import ToolSpec
from hermes.models.local.files import find_local, info_of
from hermes.models.local.server import Progress, ensure_running
from hermes.models.routes import ModelTarget

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
_TEMPERATURE: Final = 0.2
_TALKING: Final = {"repeat_penalty": 1.1, "repeat_last_n": 64}
_DECIDING: Final = {"repeat_penalty": 1.0}
"""A penalty on repeating would keep the model from writing a form it saw in the examples."""


class EmbeddedModel:
    def __init__(
        self,
        name: str,
        home: HermesHome,
        client: Callable[[ModelTarget], Model],
        environ: Mapping[str, str],
    ) -> None:
        self._home = home
        self._model = find_local(home, name)
        self.info = info_of(self._model)
        self._client = client
        self._environ = environ

    async def start(self, tools: Sequence[ToolSpec], progress: Progress | None = None) -> None:
        """Load the model and let it read its prompt before the first question.

        The engine keeps what it has read: a first real request starts from there.
        """
        await ensure_running(self._model, self._home, progress, env=self._environ)
        prompt, names = self.info.own_prompt, self.info.own_tools
        if prompt and names:
            offered = tuple(spec for spec in tools if spec.name in names)
            with contextlib.suppress(ModelFailure):
                await self.complete(
                    ModelRequest(system=prompt, messages=(), tools=offered, max_tokens=1)
                )

    async def complete(
        self, request: ModelRequest, listener: CallListener | None = None
    ) -> ModelReply:
        """Make one call; a server that has exited after its idle time is started again."""
        asked = Constrained(request) if self.info.own_tools is None else constrain(request)
        heard = HiddenForms(listener) if listener is not None and asked.forms else listener
        server = await ensure_running(self._model, self._home, env=self._environ)
        info = self.info
        target = ModelTarget(
            model=info.model,
            provider="custom",
            base_url=server.base_url,
            api_key=server.api_key,
            context_length=info.context_window,
            max_tokens=info.max_output,
            extra_body=asked.options,
        )
        reply = await self._client(target).complete(asked.request, heard)
        message = called(reply.message, asked.forms)
        return replace(
            reply, message=message, provider=info.provider, model=info.model, cost_usd=0.0
        )


class CallForm(Struct, frozen=True):
    """How the small model writes one call: the tag and a path."""

    tag: str
    tool: str
    instruction: str
    constants: dict[str, str] = {}
    """Arguments that are always the same."""


_ALL_FILES: Final = {"pattern": "*", "target": "files"}
FORMS: Final = (
    CallForm("<list>", "search_files", "To list a folder answer <list>folder.", _ALL_FILES),
    CallForm("<read>", "read_file", "To read a file answer <read>file."),
)
_EXAMPLES: Final = (
    ("list the files", "<list>."),
    ("show me notes.md", "<read>notes.md"),
    ("Hi there", "Hello! How can I help?"),
    ("what is in the folder lib?", "<list>lib"),
    ("What does app.py contain?", "<read>app.py"),
    ("What is a computer?", "A computer is a machine that follows instructions."),
    ("Which files are in this folder?", "<list>."),
    ("Thank you", "You are welcome."),
)


class Constrained(Struct, frozen=True):
    request: ModelRequest
    options: dict[str, Any] = {}
    """More fields for the engine's request: its grammar and sampling."""
    forms: tuple[CallForm, ...] = ()
    """What the answer may be besides words."""


def constrain(request: ModelRequest) -> Constrained:
    """Rewrite a request; without tools only the messages are simplified."""
    bare = replace(
        request,
        tools=(),
        tool_choice=None,
        response_schema=None,
        json_object=False,
        session_id=None,
    )
    history = request.messages
    if history and isinstance(history[-1], ToolMessage):
        after = replace(bare, system="", messages=_after_result(history), temperature=0.0)
        return Constrained(after, {**_DECIDING, "grammar": f"root ::= {_WORDS}\n"})
    names = {spec.name for spec in request.tools} if request.tool_choice != "none" else set()
    forms = [form for form in FORMS if form.tool in names]
    rows = _plain(history)
    bare = replace(
        bare,
        system=" ".join([request.system, *(form.instruction for form in forms)]).strip(),
        messages=(*_examples(forms), *rows),
        temperature=_TEMPERATURE if request.temperature is None else request.temperature,
    )
    asked = _text(rows[-1]) if rows and isinstance(rows[-1], UserMessage) else ""
    allowed = [(form, paths) for form in forms if (paths := paths_for(form, asked))]
    if not allowed:
        return Constrained(bare, _TALKING)
    calls = [
        f"{json.dumps(form.tag)} ({' | '.join(map(json.dumps, paths))})" for form, paths in allowed
    ]
    options = {**_DECIDING, "grammar": f"root ::= {' | '.join([*calls, _WORDS])}\n"}
    return Constrained(replace(bare, temperature=0.0), options, tuple(form for form, _ in allowed))


def paths_for(form: CallForm, text: str) -> list[str]:
    """Return the paths that a call of `form` may name, from what the person wrote."""
    words, paths = _WORD.findall(text), []
    if form.tag == "<read>":
        paths = [word for word in words if _FILE_NAME.fullmatch(word) or "/" in word]
    elif _ABOUT_FILES.search(text):
        paths = [word for at, word in enumerate(words) if _names_folder(words, at)] or ["."]
    return list(dict.fromkeys(paths))[:16]


def called(message: AssistantMessage, forms: Sequence[CallForm]) -> AssistantMessage:
    """Return the answer with a form that it wrote turned into a tool call."""
    form = next((form for form in forms if message.text.startswith(form.tag)), None)
    if form is None:
        return message
    path = message.text.removeprefix(form.tag).strip()
    arguments = json.dumps({**form.constants, "path": path})
    call = ToolCall(id=f"call_{secrets.token_hex(8)}", name=form.tool, arguments=arguments)
    return AssistantMessage(tool_calls=(call,), finish=FinishReason.TOOL_CALLS)


class HiddenForms:
    """Passes words on to a listener at once, and forms never."""

    def __init__(self, listener: CallListener) -> None:
        self._listener = listener
        self.on_reasoning = listener.on_reasoning
        self.on_call = listener.on_call
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


def _names_folder(words: Sequence[str], at: int) -> bool:
    word = words[at]
    if _NOT_A_PATH.fullmatch(word) or _FILE_NAME.fullmatch(word):
        return False
    before = words[at - 1] if at else ""
    after = words[at + 1] if at + 1 < len(words) else ""
    return "/" in word or bool(_FOLDER_BEFORE.match(before) or _FOLDER_AFTER.match(after))


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
    if isinstance(message, ToolMessage) and len(text) > _MAX_RESULT_CHARS:
        return text[:_MAX_RESULT_CHARS] + " ..."
    return text


def _short_form(call: ToolCall) -> str:
    tag = next((form.tag for form in FORMS if form.tool == call.name), "")
    try:
        return tag and f"{tag}{json.loads(call.arguments or '{}').get('path', '.')}"
    except (ValueError, AttributeError, RecursionError):
        return ""


def _after_result(history: Sequence[Message]) -> tuple[Message, ...]:
    """Return the question, the results as the model's own words, and the question again."""
    last = takewhile(lambda message: isinstance(message, ToolMessage), reversed(history))
    results = [message for message in last if isinstance(message, ToolMessage)]
    read = results[-1].name == "read_file"
    said = [_LINE_NUMBER.sub("", _text(each)) for each in reversed(results)]
    asked = [_text(message) for message in history if isinstance(message, UserMessage)]
    question = asked[-1] if asked else ""
    return (
        UserMessage(content=question),
        AssistantMessage(text="\n".join(["The file says:" if read else "The files are:", *said])),
        UserMessage(content=f"So, {question}"),
    )


def _examples(forms: Sequence[CallForm]) -> Iterator[Message]:
    tags = tuple(form.tag for form in forms)
    for asked, said in _EXAMPLES if forms else ():
        if not said.startswith("<") or said.startswith(tags):
            yield UserMessage(content=asked)
            yield AssistantMessage(text=said)
