"""Judges what tools are about to do, by what their environment exposes of the person's.

Everything: all rules. Some directories: only what loses files there, the rest is behind
walls. Nothing: no question. A command that wants out is judged as on the host, and asks.

A judgement knows the session: functions, exported variables and files that earlier calls
have left behind, and what was typed into a running program before. The gate says with
`note` which calls are carried out, and only those count.

Where it runs: texts of up to 600 characters are judged at once (most take less than a
millisecond, none more than about 0.02 s). As soon as a longer one comes up, the call itself, a
variable of the session or a file that it runs, or 0.015 s have passed, the question goes to a
process of its own, because Python's matcher can be neither interrupted nor moved off the loop.
One that does not answer in time is ended, and the answer is to ask.
"""

import asyncio
import pickle
import shlex
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from weakref import WeakKeyDictionary

from msgspec import Struct, field, structs

from hermes.domain.approvals import Gate, Verdict
from hermes.domain.ports.execution import Environment, digest
from hermes.domain.settings.live import LiveSettings
from hermes.domain.tools import Intent
from hermes.execution.policy.command import Carried, TooLong
from hermes.execution.policy.judge import (
    CommandPolicy,
    Judgement,
    PolicySettings,
    exact_pattern,
    sentence,
)
from hermes.execution.policy.made import forgotten

MAX_INLINE = 600
"""Characters; a longer text is judged in another process."""
MAX_PATHS = 50
MAX_PATHS_LENGTH = 10_000
"""More files of one call, and more characters of their names, are judged there too."""
WORKER_SECONDS = 10.0
_MAX_CARRIED = 500
_MAX_CARRIED_SIZE = 2_000_000
"""Bytes of functions, and characters of variables."""
_MAX_TYPED = 65_536
_LONGEST_REASON = 200
_MAX_WAITING = 50
_ALLOW = Verdict(gate=Gate.ALLOW)
_TYPED_TOO_MUCH = Verdict(
    gate=Gate.ASK, reason="More was typed into this program than is remembered", opaque=True
)


class Question(Struct, frozen=True, kw_only=True):
    """Everything that a judgement depends on, so that another process can give it."""

    settings: PolicySettings
    intent: Intent
    cwd: str
    workdir: str
    writes: tuple[str, ...]
    reads: tuple[str, ...]
    grants: frozenset[str]
    carried: Carried
    exposed: tuple[str, ...] = ("/",)
    """What of the person's the call can change."""
    leaves: bool = False
    """Whether it wants to run outside the walls."""
    program: str = ""
    """The running program that `intent.command` is typed into."""
    begun: str = ""
    """Where that program was started."""
    typed: str = ""
    """What was typed into it before."""

    def answer(self, longest: int = sys.maxsize) -> Judgement:
        """Return the strictest verdict on anything the call would do.

        `TooLong` if that takes reading a text of more than `longest` characters.
        """
        policy, intent, left = CommandPolicy(self.settings, longest), self.intent, Carried()
        paths = [*self.writes, *self.reads]
        many = len(paths) > MAX_PATHS or sum(map(len, paths)) > MAX_PATHS_LENGTH
        if many and longest < sys.maxsize:
            raise TooLong
        if max(len(intent.command) + len(self.typed), len(intent.code)) > longest:
            raise TooLong
        command = f"python3 -c {shlex.quote(intent.code)}" if intent.code else intent.command
        around = {"cwd": self.workdir, "grants": self.grants, "carried": self.carried}
        if self.exposed != ("/",) and not self.leaves:
            if not (intent.process and self.program):
                return policy.judge_losses(command, self.exposed, **around)  # type: ignore[arg-type]
            return Judgement(self._typed_behind_walls(policy, command))
        verdicts: list[Verdict] = []
        if intent.process and self.program:
            place = {"cwd": self.begun or self.cwd, "carried": self.carried}
            more = len(self.typed) > _MAX_TYPED
            verdicts += [_TYPED_TOO_MUCH] if more else []
            typed = "" if more else self.typed
            verdicts.append(policy.judge_typed(self.program, typed, command, **place))  # type: ignore[arg-type]
        elif command:
            judgement = policy.examine(command, **around)  # type: ignore[arg-type]
            left = judgement.left
            verdicts.append(judgement.verdict)
        # The file tools know nothing of what the session's shell has become, but where it began.
        begun = Carried(project=self.carried.project)
        files = {"cwd": self.cwd, "grants": self.grants, "carried": begun}
        verdicts += [policy.judge_write(path, **files) for path in self.writes]  # type: ignore[arg-type]
        shown = [f"cat {shlex.quote(path)}" for path in self.reads]
        verdicts += [policy.examine(each, **files).verdict for each in shown]  # type: ignore[arg-type]
        order = (Gate.BLOCK, Gate.ASK, Gate.ALLOW)
        worst = min(verdicts, key=lambda verdict: order.index(verdict.gate), default=_ALLOW)
        return Judgement(self.leaving(worst), left)

    def _typed_behind_walls(self, policy: CommandPolicy, data: str) -> Verdict:
        """Judge text for a program's input; a person has answered for what was typed before."""

        def judged(text: str) -> Verdict:
            end = digest(text.encode("utf-8", "replace"))  # which no text can have in it
            script = f"{self.program} <<'{end}'\n{text}\n{end}"
            cwd, carried = self.begun or self.cwd, self.carried
            return policy.judge_losses(script, self.exposed, cwd=cwd, carried=carried).verdict

        before = "" if judged(self.typed).gate is not Gate.ALLOW else self.typed
        return judged(f"{before}{data}")

    def leaving(self, verdict: Verdict) -> Verdict:
        """Return a verdict that says so if the call leaves the walls.

        Once, and by a person: it grants nothing, and no second opinion is enough.
        """
        if not self.leaves or self.settings.mode == "off" or verdict.gate is Gate.BLOCK:
            return verdict
        given = sentence(self.intent.escalate)
        given = given if len(given) <= _LONGEST_REASON else f"{given[:_LONGEST_REASON]}…"
        begun = self.carried.project or self.cwd
        place = "" if self.workdir == begun else f", to run in {sentence(self.workdir)}"
        reason = f"It leaves the sandbox{place}: “{given}”. {verdict.reason}".rstrip()
        return Verdict(gate=Gate.ASK, reason=reason, opaque=True)


class _Session(Struct):
    carried: Carried
    typed: dict[str, str] = field(default_factory=dict)
    judged: list[tuple[Intent, Carried]] = field(default_factory=list)
    """What waits to be carried out, or never will be."""

    def wait(self, intent: Intent, left: Carried) -> None:
        self.judged.append((intent, left))
        del self.judged[:-_MAX_WAITING]

    def take(self, intent: Intent) -> Carried:
        """Return what a call leaves behind; if that is not known any more, that is left."""
        waiting = [index for index, (other, _) in enumerate(self.judged) if other == intent]
        if waiting:
            return self.judged.pop(waiting[-1])[1]
        return Carried(forgot=bool(intent.command or intent.code) and not intent.process)

    def keep_files(self, made: Mapping[str, bool]) -> None:
        """Remember files, the latest last; for the oldest one mark stands that makes others ask."""
        files, mark = self.carried.files, forgotten(self.carried.project)
        for path, fetched in made.items():
            files.pop(path, None)
            files[path] = fetched
        dropped = [files.pop(path) for path in list(files)[:-_MAX_CARRIED]]
        if dropped:
            files[mark] = any(dropped) or files.get(mark, False)


class HostPolicy:
    """Judges intents with what is known of their session."""

    def __init__(self, settings: LiveSettings, environ: Mapping[str, str], home: Path) -> None:
        self._settings = settings
        self._user_home = environ.get("HOME") or str(Path.home())
        self._hermes_home = str(home)
        self._sessions: WeakKeyDictionary[Environment, _Session] = WeakKeyDictionary()

    def settings(self, *, trusted: bool = False) -> PolicySettings:
        now = self._settings()
        return PolicySettings(
            mode="off" if trusted else "manual",
            deny=now.approvals.deny,
            allowlist=now.command_allowlist,
            user_home=self._user_home,
            hermes_home=self._hermes_home,
        )

    async def judge(
        self, intent: Intent, environment: Environment, *, grants: Collection[str], trusted: bool
    ) -> Verdict:
        leaves = bool(intent.escalate) and environment.can_leave
        exposed = environment.exposed
        running = {p.id: p for p in await environment.processes()} if intent.process else {}
        process = running.get(intent.process)
        if process is not None and process.outside:
            exposed = ("/",)  # it was let out, what is typed into it is not
        session = self._sessions.get(environment)
        if session is None:
            carried = Carried(functions={}, exports={}, files={}, project=environment.cwd)
            session = self._sessions[environment] = _Session(carried)
        if exposed != ("/",) and not leaves and not (exposed and (intent.command or intent.code)):
            session.wait(intent, Carried())
            return _ALLOW
        question = Question(
            settings=self.settings(trusted=trusted),
            intent=intent,
            cwd=environment.cwd,
            workdir=environment.resolve(intent.workdir or "."),
            exposed=exposed,
            leaves=leaves,
            writes=tuple(environment.resolve(path) for path in intent.writes),
            reads=tuple(environment.resolve(path) for path in intent.reads),
            grants=frozenset() if leaves else frozenset(grants),
            carried=session.carried,
        )
        if process is not None:
            typed = session.typed.get(process.id, "")
            question = structs.replace(
                question, program=process.command, begun=process.cwd, typed=typed
            )
        try:
            judgement = question.answer(MAX_INLINE)
        except TooLong:
            judgement = await _elsewhere(question)
        session.wait(intent, judgement.left)  # several may wait for an answer at once
        return judgement.verdict

    def note(self, intent: Intent, environment: Environment) -> None:
        """Remember what a call leaves behind that is about to be carried out."""
        session = self._sessions.get(environment)
        if session is None:
            return
        left, carried = session.take(intent), session.carried
        carried.functions.update(left.functions)
        carried.exports.update(left.exports)
        _drop_oldest(carried.exports)  # a variable is only unknown then
        forgot = _drop_oldest(carried.functions) or carried.forgot or left.forgot
        session.carried = structs.replace(carried, forgot=forgot)
        session.keep_files(left.files)
        session.keep_files({environment.resolve(path): False for path in intent.writes})
        if intent.process:
            typed = session.typed.get(intent.process, "") + intent.command
            session.typed[intent.process] = typed[: _MAX_TYPED + 1]


def _drop_oldest(table: dict[str, bytes] | dict[str, str]) -> bool:
    """Drop what is oldest of a table that holds too much; tell whether it did."""
    size, before = sum(map(len, table.values())), len(table)
    for name in [*table]:
        if size > _MAX_CARRIED_SIZE or len(table) > _MAX_CARRIED:
            size -= len(table.pop(name))
    return len(table) < before


async def _elsewhere(question: Question) -> Judgement:
    """Have a question answered by a process that can be ended."""
    output = b""
    with suppress(OSError):  # the machine may have no room for another process
        output = await _ask_worker(pickle.dumps(question))
    if output:
        judgement: Judgement = pickle.loads(output)  # noqa: S301 - written by this very module
        return judgement
    pattern = exact_pattern(question.intent.command + question.intent.code, question.workdir)
    reason = "It takes too long to be judged"
    verdict = Verdict(gate=Gate.ASK, reason=reason, pattern=pattern, opaque=True)
    return Judgement(question.leaving(verdict))


async def _ask_worker(question: bytes) -> bytes:
    """Return what a process of its own answers; nothing if it fails or takes too long."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-c", "from hermes.execution.policy import host; host.answer()"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(WORKER_SECONDS):
            output, _ = await process.communicate(question)
    except TimeoutError:
        return b""
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return output if process.returncode == 0 else b""


def answer() -> None:
    question: Question = pickle.load(sys.stdin.buffer)  # noqa: S301 - written by this very module
    sys.stdout.buffer.write(pickle.dumps(question.answer()))
