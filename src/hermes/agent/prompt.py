"""The system prompt: built once per session, byte-stable for its whole life.

The order is fixed: identity, guidance for the tools present, where commands run,
skills index, platform hint, place of the conversation, project context file, memory
snapshot, date. Anything volatile (who is speaking, what time it is now, recalled
memory) is *not* here: it is sent with a single call and never stored.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import cache, lru_cache
from pathlib import Path, PurePosixPath

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hermes.agent.scope import AgentServices
from hermes.domain.errors import HermesError
from hermes.domain.platforms import platforms
from hermes.domain.ports.clock import zone_named
from hermes.domain.ports.execution import Environment
from hermes.domain.ports.files import IdentitySnapshot
from hermes.domain.profile import AgentProfile
from hermes.domain.session import Lineage, Session
from hermes.domain.tools import ToolRunner, ToolSpec


class _Guidance(Struct, frozen=True):
    tools: frozenset[str]
    text: str


class _Texts(Struct, frozen=True):
    identity: str
    platforms: dict[str, str]
    guidance: tuple[_Guidance, ...]


@cache
def _texts() -> _Texts:
    text = Path(__file__).with_name("prompt.yaml").read_text("utf-8")
    return msgspec.yaml.decode(text, type=_Texts)


class PromptInputs(Struct, frozen=True, kw_only=True):
    identity: IdentitySnapshot
    tools: Sequence[ToolSpec]
    platform: str
    platform_hint: str | None
    """Replaces the built-in hint; an empty string removes it."""
    environment: str = ""
    """Where commands run and what they can reach there."""
    place: str = ""
    """Where the conversation takes place, as its door describes it."""
    context: tuple[str, str] | None
    """Name and text of the project context file."""
    date: str
    model: str
    cwd: str | None


def prompt_sections(inputs: PromptInputs) -> dict[str, str]:
    """Return the parts of the system prompt by name, in order, without empty ones."""
    texts, identity = _texts(), inputs.identity
    present = {tool.name for tool in inputs.tools}
    guidance = [f"- {each.text}" for each in texts.guidance if each.tools <= present]
    hint = inputs.platform_hint if inputs.platform_hint is not None else _hint(inputs.platform)
    notes, notes_text = inputs.context or ("", "")
    facts = [f"Conversation started: {inputs.date}", f"Model: {inputs.model}"]
    facts += [f"Working directory: {inputs.cwd}"] if inputs.cwd else []
    sections = {
        "identity": identity.soul or texts.identity,
        "tools": _block("Working with tools", "\n".join(guidance)),
        "environment": _block("Where your tools work", inputs.environment),
        "skills": _block("Skills", identity.skills),
        "platform": hint,
        "place": inputs.place,
        "context": _block(f"Project notes ({notes})", notes_text),
        "memory": _block("What you remember", identity.memory),
        "user": _block("What you know about the user", identity.user),
        "date": "\n".join(facts),
    }
    return {name: text.strip() for name, text in sections.items() if text.strip()}


def build_prompt(inputs: PromptInputs) -> str:
    return "\n\n".join(prompt_sections(inputs).values())


def _hint(source: str) -> str:
    texts = _texts().platforms
    if source in texts:
        return texts[source]
    chat = platforms().get(source)
    return chat.hint if chat is not None else ""


def _block(title: str, text: str | None) -> str:
    return f"## {title}\n{text.strip()}" if text and text.strip() else ""


UPWARD_NAMES = (".hermes.md", "HERMES.md")
LOCAL_NAMES = ("AGENTS.md", "CLAUDE.md", ".cursorrules")
MAX_LEVELS = 24
CONTEXT_FILE_CHARS = 20_000
"""Longest part of a project file that is read unless `context_file_max_chars` says otherwise."""


async def find_context_file(environment: Environment, max_chars: int) -> tuple[str, str] | None:
    """Return name and text of the project notes for the environment's working directory."""
    there = await environment.present(_candidates(environment.cwd))
    if not there:
        return None
    here = PurePosixPath(environment.cwd)
    above = _up_to_repository_root([here, *here.parents][:MAX_LEVELS], there)[1:]
    upward = [directory / name for directory in above for name in UPWARD_NAMES]
    if upward:
        there |= await environment.present([str(path) for path in upward])
    own, local = ([here / name for name in names] for names in (UPWARD_NAMES, LOCAL_NAMES))
    for path in (*own, *upward, *local):
        found = await _read(environment, path, max_chars) if str(path) in there else None
        if found:
            return found
    return None


@lru_cache(maxsize=64)
def _candidates(cwd: str) -> list[str]:
    """Return what tells whether there are notes; few are in a folder within a repository."""
    here = PurePosixPath(cwd)
    roots = [directory / ".git" for directory in [here, *here.parents][:MAX_LEVELS]]
    return [str(path) for path in (*roots, *(here / name for name in UPWARD_NAMES + LOCAL_NAMES))]


def _up_to_repository_root(
    chain: list[PurePosixPath], there: frozenset[str]
) -> list[PurePosixPath]:
    """Return the directories up to the repository root; only the first one outside one."""
    for depth, directory in enumerate(chain):
        if str(directory / ".git") in there:
            return chain[: depth + 1]
    return chain[:1]


async def _read(
    environment: Environment, path: PurePosixPath, max_chars: int
) -> tuple[str, str] | None:
    stat = await environment.stat(str(path))
    if stat is None or not stat.is_file:
        return None
    data = await environment.read(str(path), limit=max_chars * 4 + 4)
    return path.name, shorten(data.decode("utf-8", "replace"), max_chars)


def shorten(text: str, max_chars: int) -> str:
    """Keep the first 70 % and the last 20 % of a text that is too long."""
    if len(text) <= max_chars:
        return text
    head, tail = int(max_chars * 0.7), int(max_chars * 0.2)
    return f"{text[:head]}\n[... {len(text) - head - tail} characters left out ...]\n{text[-tail:]}"


_USES_ENVIRONMENT = frozenset({"terminal", "read_file", "write_file", "patch", "search_files"})


async def gather_inputs(
    services: AgentServices, profile: AgentProfile, session: Session, model: str, tools: ToolRunner
) -> PromptInputs:
    settings = services.settings()
    alone = services.private_workspace(session)
    notes: tuple[str, str] | None = None
    identity = IdentitySnapshot()
    if services.load_context_files:
        identity = await services.identity.snapshot(profile)
    if session.lineage is Lineage.DELEGATION:
        # Part of a task needs no memory; another agent that was asked answers with its own.
        asking = await services.ledger.session(session.parent_id or "")
        if asking is None or asking.agent_id == profile.id:
            identity = replace(identity, memory=None, user=None)
    environment: Environment | None = None
    try:
        environment = await services.environments.get(profile.id, session.workspace, session.cwd)
    except HermesError:  # tools say so when they are used
        if not alone:
            raise
    if environment and services.load_context_files and not alone:
        notes = await find_context_file(
            environment, settings.context_file_max_chars or CONTEXT_FILE_CHARS
        )
    present = {tool.name for tool in tools.specs()}
    started = datetime.fromtimestamp(session.started_at, zone_named(settings.timezone))
    return PromptInputs(
        identity=identity,
        tools=tools.specs(),
        platform=session.source,
        platform_hint=str(settings.platform_hints.get(session.source) or "") or None,
        environment=environment.about if environment and present & _USES_ENVIRONMENT else "",
        context=notes,
        date=started.strftime("%A, %Y-%m-%d"),
        model=model,
        cwd=None if alone else session.cwd,
    )
