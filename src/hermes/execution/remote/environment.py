"""LinkedEnvironment: a session on a machine that is reached over a `Link`.

Every script goes through the supervisor, so that its end is known for certain
and killing it works on every link. Directory and exit code come back with the
mark: a command costs one exchange. The shell state is kept in a directory of
the machine; a machine that was replaced knows nothing of earlier variables,
only the session's directory is kept.
"""

import asyncio
import base64
import contextlib
import logging
import secrets
import shlex
import sys
from collections.abc import Awaitable, Callable, Mapping

from msgspec import Struct

from hermes.domain.errors import HermesError, UsageError
from hermes.execution.backend import EnvironmentRequest
from hermes.execution.host.process import ChildProcess
from hermes.execution.host.shell import Generation, RenderedCommand, ShellEnvironment, ShellSession
from hermes.execution.remote.files import RemoteFiles
from hermes.execution.remote.link import Link, RemoteCall
from hermes.execution.remote.supervisor import (
    RemoteChild,
    kill_all_script,
    kill_script,
    supervised,
)
from hermes.execution.remote.sync import FileSync

_log = logging.getLogger(__name__)

_REMEMBERED = 64
_CLOSE_TIMEOUT = 30.0


class MachineSetup(Struct, frozen=True, kw_only=True):
    """How a session begins on a machine; where exactly it says itself when it is opened."""

    cwd: str
    home: str = "/"
    state_root: str = "/tmp"  # noqa: S108 - made 0700 there
    """Where the directory for the shell state is made."""
    own: tuple[str, ...] = ()
    """Folders of the session; empty for the one it begins in."""
    inbox: str = ""
    """Folder for files that people send; empty for one in the home."""
    about: str = ""
    """What the model is told about the machine; empty for its name only."""
    exports: Mapping[str, str] = {}
    login: bool = False
    """Take the variables of a login shell."""


async def open_linked(
    link: Link, request: EnvironmentRequest, *, login: bool = False, sync: bool = True
) -> "LinkedEnvironment":
    """Open the machine and return the session's environment on it."""
    named, settings = request.terminal.env_passthrough, request.settings
    skills = settings.skills_dir or settings.home.skills_dir
    exports = {name: value for name, value in request.env.items() if name in named}
    environment = LinkedEnvironment(
        link,
        request,
        MachineSetup(cwd=request.cwd, exports=exports, login=login),
        FileSync(skills, request.clock) if sync else None,
    )
    try:
        await environment.reach()
    except BaseException:
        await environment.close()
        raise
    return environment


class LinkedEnvironment(ShellEnvironment):
    _max_inline = sys.maxsize  # scripts travel on standard input

    def __init__(
        self,
        link: Link,
        request: EnvironmentRequest,
        setup: MachineSetup,
        sync: FileSync | None = None,
    ) -> None:
        super().__init__(
            cwd=setup.cwd,
            clock=request.clock,
            notify=request.notify,
            kill_grace=request.terminal.daemon_term_grace_seconds,
        )
        self.exposed = link.exposed
        self.about = setup.about or f"Commands and file tools work on {link.name}."
        self._link = link
        self._setup = setup
        self._sync = sync
        self._there = setup.home
        self._task = request.task
        self._begin_in = setup.cwd
        self._state_dir = f"{setup.state_root}/hermes-shell-{secrets.token_hex(8)}"
        self._helpers = 0
        self._running: dict[int, RemoteChild] = {}
        self._note = ""
        self._reached_machine = 0
        self._files = RemoteFiles(self._call)

    async def reach(self) -> None:
        """Open the machine now, to learn what is wrong with it."""
        await self._opened()

    @property
    def _home(self) -> str:
        return self._there

    @property
    def own(self) -> tuple[str, ...]:  # type: ignore[override]
        return self._setup.own or (self._begin_in,)

    def _inbox(self) -> str:
        return self._setup.inbox or f"{self._there}/.hermes/inbox/{self._task}"

    async def _open(self) -> ShellSession:
        shell = self._shell
        reached = await self._link.open()
        if reached != self._reached_machine:
            if await self._set_up():
                shell = None
            self._reached_machine = reached
        if self._sync is not None:
            try:
                await self._sync.push(self._call, self._there)
            except HermesError as error:  # must not keep a full disk from being cleaned
                self._note = f"\n[{error.message}]\n"
        return shell or ShellSession(self._state_dir, self._begin_in, self.cwd, begun=True)

    async def _shut(self) -> None:
        try:
            if self._reached_machine:
                number = f"h{self._helpers + 1}"
                with contextlib.suppress(HermesError, TimeoutError):
                    async with asyncio.timeout(_CLOSE_TIMEOUT):
                        script = kill_all_script(self._state_dir, number)
                        await self._helper(number, script, b"", 10)
        finally:
            self._reached_machine = 0
            self._running.clear()
            try:
                await self._link.close()
            except HermesError as error:
                # Whoever closes has other environments to close as well.
                _log.warning("closing %s failed: %s", self._link.name, error)

    def _start(self, rendered: RenderedCommand) -> "_RemoteLaunch":
        if "\0" in rendered.script:
            raise HermesError("The command cannot be run: embedded null byte.")
        if rendered.command.pty and not self._link.has_terminal:
            raise UsageError(f"There are no terminals on {self._link.name}; run it without `pty`.")
        return _RemoteLaunch(begin=self._begin, rendered=rendered)

    async def _begin(
        self, rendered: RenderedCommand, sink: Callable[[bytes], None]
    ) -> ChildProcess:
        command = rendered.command
        number = str(rendered.generation.number)
        text = rendered.no_input + rendered.script
        script = text.encode("utf-8", "surrogateescape") + b"\0"
        if command.pty:
            await self._call(f"umask 077; cat >{self._state_dir}/script.{number}", script)
        outdated = str(rendered.outdated.number) if rendered.outdated else ""
        mark, argv = supervised(self._state_dir, number, outdated)
        child = RemoteChild(self._link, mark, sink)
        self._running[rendered.generation.number] = child
        while len(self._running) > _REMEMBERED:
            del self._running[next(iter(self._running))]
        await child.begin(
            RemoteCall(
                argv=argv,
                stdin=b"" if command.pty else script + (command.stdin or b""),
                interactive=rendered.interactive,
                pty=command.pty,
            ),
            lambda grace: self._kill(number, grace),
        )
        return child

    async def _kill(self, number: str, grace: float) -> None:
        await self._call(kill_script(self._state_dir, number, grace), timeout=grace + 10)

    async def _collect(
        self,
        generation: Generation,
        outdated: Generation | None,  # noqa: ARG002 - the supervisor has removed it
    ) -> str | None:
        child = self._running.pop(generation.number, None)
        return child.cwd or None if child else None

    async def _settle(self) -> str:
        note, self._note = self._note, ""
        return note

    async def _set_up(self) -> bool:
        """Make the state directory; False if it is still there from before."""
        env = shlex.quote(f"{self._state_dir}/env.0")
        start = self._begin_in
        save = f"export -p >|{env}"
        if self._setup.login:
            save = f"bash -l -c 'export -p >|\"$1\"' bash {env} </dev/null >/dev/null 2>&1"
        exports = {"TERM": "dumb", **self._setup.exports}
        lines = [
            f"if [ -s {env} ]; then printf 'kept\\0'; exit 0; fi",
            *(f"export {name}={shlex.quote(value)}" for name, value in exports.items()),
            f'{{ cd -- {shlex.quote(start)} || cd -- "$HOME" || cd /; }} 2>/dev/null'
            if start.startswith("/")
            else 'cd -- "$HOME" 2>/dev/null || cd /',
            save,
            f"[ -s {env} ] || export -p >|{env}",
            r'printf "%s\0" "${HOME:-/}" "$PWD"',
        ]
        status, output = await self._call("; ".join(lines))
        facts = output.decode("utf-8", "surrogateescape").split("\0")
        if facts == ["kept", ""]:
            return False
        if status or len(facts) != 3:
            raise HermesError(
                f"A shell on {self._link.name} does not answer as expected: {facts[0][:300]!r}.",
                hint="Check that bash and the usual tools are there.",
            )
        if not self._reached_machine and self._cwd == start:
            self._cwd = facts[1]
        self._there, self._begin_in = facts[0], facts[1]
        return True

    async def _call(
        self, script: str, stdin: bytes = b"", *, timeout: float = 60.0
    ) -> tuple[int, bytes]:
        """Run a helper script; return its status and output."""
        self._helpers += 1
        return await self._helper(f"h{self._helpers}", script, stdin, timeout)

    async def _helper(
        self, number: str, script: str, stdin: bytes, timeout: float
    ) -> tuple[int, bytes]:
        if self._link.text_only:
            script = f"set -o pipefail; {{ {script}; }} 2>&1 | base64"
        output = bytearray()
        mark, argv = supervised(self._state_dir, number)
        child = RemoteChild(self._link, mark, output.extend)
        payload = script.encode("utf-8", "surrogateescape") + b"\0" + stdin
        try:
            await child.begin(RemoteCall(argv=argv, stdin=payload), None)
            if not await child.wait(timeout):
                raise HermesError(f"{self._link.name} did not answer for {timeout:g} seconds.")
        finally:
            await child.close()
        if child.lost:
            said = output.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise HermesError(said.strip("[]"))
        decoded = base64.b64decode(output) if self._link.text_only else bytes(output)
        return child.exit_code or 0, decoded


class _RemoteLaunch(Struct, frozen=True, kw_only=True):
    begin: Callable[[RenderedCommand, Callable[[bytes], None]], Awaitable[ChildProcess]]
    rendered: RenderedCommand

    async def start(self, sink: Callable[[bytes], None]) -> ChildProcess:
        return await self.begin(self.rendered, sink)
