"""Commands and files of a machine that is reached over a `Link`.

`LinkedPlace` keeps the session's state directory there, runs helper scripts
and keeps files in step; `LinkedEnvironment` is the environment on top of it.
Every script goes through the supervisor, so that its end is known for certain
and killing it works on every link. Directory and exit code come back with the
mark: a command costs one exchange.
"""

import asyncio
import base64
import contextlib
import logging
import secrets
import shlex
from collections.abc import Callable, Mapping

import msgspec
from msgspec import Struct

from hermes.domain.errors import HermesError, UsageError
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.execution import Command
from hermes.execution.backend import EnvironmentRequest
from hermes.execution.host.process import KILL_GRACE, Launch, Startable
from hermes.execution.host.shell import Generation, ShellSession
from hermes.execution.host.shell_environment import Rendered
from hermes.execution.remote.environment import RemoteEnvironment
from hermes.execution.remote.files import RemoteFiles
from hermes.execution.remote.link import Link, RemoteCall
from hermes.execution.remote.supervisor import RemoteChild, kill_all_script, kill_script, supervised
from hermes.execution.remote.sync import FileSync

_log = logging.getLogger(__name__)

_REMEMBERED = 64
_SETUP_TIMEOUT = 60.0
_CLOSE_TIMEOUT = 30.0


def session_exports(request: EnvironmentRequest) -> dict[str, str]:
    """Return the variables that go along to another machine: only those named for it."""
    named = request.settings.env_passthrough
    return {"TERM": "dumb", **{k: v for k, v in request.env.items() if k in named}}


async def open_linked(
    link: Link,
    request: EnvironmentRequest,
    *,
    kill_grace: float = KILL_GRACE,
    login: bool = False,
    sync: FileSync | None = None,
) -> "LinkedEnvironment":
    """Open the machine and return the session's environment on it."""
    place = LinkedPlace(
        link, cwd=request.cwd, exports=session_exports(request), login=login, sync=sync
    )
    try:
        await place.open()
    except BaseException:
        await place.close()
        raise
    return LinkedEnvironment(
        place, clock=request.clock, notify=request.notify, kill_grace=kill_grace
    )


class LinkedPlace:
    """A machine behind a link, as one session sees it."""

    def __init__(
        self,
        link: Link,
        *,
        cwd: str = "",
        exports: Mapping[str, str] | None = None,
        login: bool = False,
        sync: FileSync | None = None,
    ) -> None:
        self._link = link
        self._exports = exports or {}
        self._login = login
        self._sync = sync
        self._helpers = 0
        self._running: dict[int, RemoteChild] = {}
        self._note = ""
        self._reached = 0
        self.lives = 0
        """How often the session's state had to be made there."""
        self.home = "/"
        self.start = cwd
        self.state_dir = f"/tmp/hermes-shell-{secrets.token_hex(8)}"  # noqa: S108 - made 0700 there
        self.files = RemoteFiles(self.call)

    @property
    def isolated(self) -> bool:
        """True when commands there cannot reach the host's files."""
        return self._link.isolated

    async def open(self) -> None:
        """Bring it up; does nothing when it is up."""
        reached = await self._link.open()
        if reached != self._reached:
            await self._set_up()
            self._reached = reached
        if self._sync is not None:
            try:
                await self._sync.push(self.call, self.home)
            except HermesError as error:  # must not keep a full disk from being cleaned
                self._note = f"\n[{error.message}]\n"

    def launch(self, script: str, command: Command, *, background: bool) -> Launch:
        """Never used: `LinkedEnvironment` starts commands with their generation."""
        raise NotImplementedError

    def command(
        self, script: str, command: Command, generation: Generation, outdated: Generation | None
    ) -> "RemoteLaunch":
        """Return what runs the bash text `script` as a command of the session."""
        if "\0" in script:
            raise HermesError("The command cannot be run: embedded null byte.")
        if command.pty and not self._link.has_terminal:
            raise UsageError(f"There are no terminals on {self._link.name}; run it without `pty`.")
        return RemoteLaunch(
            place=self,
            script=script,
            command=command,
            number=generation.number,
            outdated=str(outdated.number) if outdated else "",
        )

    async def call(
        self, script: str, stdin: bytes = b"", *, timeout: float = 60.0
    ) -> tuple[int, bytes]:
        """Run a helper script; return its status and output."""
        self._helpers += 1
        return await self._helper(f"h{self._helpers}", script, stdin, timeout)

    async def collect(
        self,
        generation: Generation,
        outdated: Generation | None,  # noqa: ARG002 - the supervisor has removed it
    ) -> str | None:
        """Return the directory a command ended in."""
        child = self._running.pop(generation.number, None)
        return child.cwd or None if child else None

    async def settle(self) -> str:
        """Return what went wrong beside the command."""
        note, self._note = self._note, ""
        return note

    async def close(self) -> None:
        """Stop everything in it, bring changed files back and let the machine go."""
        try:
            if self._reached:
                with contextlib.suppress(HermesError, TimeoutError):
                    async with asyncio.timeout(_CLOSE_TIMEOUT):
                        await self._leave()
        finally:
            self._reached = 0
            self._running.clear()
            try:
                await self._link.close()
            except HermesError as error:
                # Whoever closes has other environments to close as well.
                _log.warning("closing %s failed: %s", self._link.name, error)

    async def begin(self, launch: "RemoteLaunch", sink: Callable[[bytes], None]) -> RemoteChild:
        """Start a command of the session."""
        number = str(launch.number)
        script = launch.script.encode("utf-8", "surrogateescape")
        if launch.command.pty:
            await self.call(f"umask 077; cat >{self.state_dir}/script.{number}", script + b"\0")
            script = b""
        ticket = supervised(self.state_dir, number, launch.outdated)
        payload = script + b"\0" + (launch.command.stdin or b"")
        call = RemoteCall(
            argv=ticket.argv,
            stdin=b"" if launch.command.pty else payload,
            interactive=launch.interactive and launch.command.stdin is None,
            pty=launch.command.pty,
        )
        child = RemoteChild(self._link, ticket.mark, sink)
        self._running[launch.number] = child
        while len(self._running) > _REMEMBERED:
            del self._running[next(iter(self._running))]
        await child.begin(call, lambda grace: self._kill(number, grace))
        return child

    async def _kill(self, number: str, grace: float) -> None:
        await self.call(kill_script(self.state_dir, number, grace), timeout=grace + 10)

    async def _leave(self) -> None:
        if self._sync is not None:
            await self._sync.pull(self.call, self.home)
        number = f"h{self._helpers + 1}"
        await self._helper(number, kill_all_script(self.state_dir, number), b"", 10)

    async def _set_up(self) -> None:
        env = shlex.quote(f"{self.state_dir}/env.0")
        save = f"export -p >|{env}"
        if self._login:
            save = f"bash -l -c 'export -p >|\"$1\"' bash {env} </dev/null >/dev/null 2>&1"
        lines = [
            f"if [ -s {env} ]; then printf 'kept\\0'; exit 0; fi",
            *(f"export {name}={shlex.quote(value)}" for name, value in self._exports.items()),
            f'{{ cd -- {shlex.quote(self.start)} || cd -- "$HOME" || cd /; }} 2>/dev/null'
            if self.start.startswith("/")
            else 'cd -- "$HOME" 2>/dev/null || cd /',
            save,
            f"[ -s {env} ] || export -p >|{env}",
            r'printf "%s\0" "${HOME:-/}" "$PWD"',
        ]
        script = "; ".join(lines)
        status, output = await self.call(script, timeout=_SETUP_TIMEOUT)
        facts = output.decode("utf-8", "surrogateescape").split("\0")
        if facts == ["kept", ""]:
            return
        if status or len(facts) != 3:
            raise HermesError(
                f"A shell on {self._link.name} does not answer as expected: {facts[0][:300]!r}.",
                hint="Check that bash and the usual tools are there.",
            )
        self.home, self.start = facts[0], facts[1]
        self.lives += 1

    async def _helper(
        self, number: str, script: str, stdin: bytes, timeout: float
    ) -> tuple[int, bytes]:
        if self._link.text_only:
            script = f"set -o pipefail; {{ {script}; }} 2>&1 | base64"
        pieces: list[bytes] = []
        ticket = supervised(self.state_dir, number)
        child = RemoteChild(self._link, ticket.mark, pieces.append)
        payload = script.encode("utf-8", "surrogateescape") + b"\0" + stdin
        try:
            await child.begin(RemoteCall(argv=ticket.argv, stdin=payload), None)
            if not await child.wait(timeout):
                raise HermesError(f"{self._link.name} did not answer for {timeout:g} seconds.")
        finally:
            await child.close()
        output = b"".join(pieces)
        if child.lost:
            said = output.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise HermesError(said.strip("[]"))
        if self._link.text_only:
            output = base64.b64decode(output)
        return child.exit_code or 0, output


class RemoteLaunch(Struct, frozen=True, kw_only=True):
    """A command of the session on its machine."""

    place: LinkedPlace
    script: str
    command: Command
    number: int
    outdated: str
    interactive: bool = False

    async def start(self, sink: Callable[[bytes], None]) -> RemoteChild:
        """Start it; its output goes to `sink`."""
        return await self.place.begin(self, sink)


class LinkedEnvironment(RemoteEnvironment):
    """The hands of one session on a linked machine."""

    def __init__(
        self,
        place: LinkedPlace,
        *,
        clock: Clock,
        notify: Callable[[str, str], None] = lambda *_: None,
        kill_grace: float = KILL_GRACE,
    ) -> None:
        super().__init__(place, clock=clock, notify=notify, kill_grace=kill_grace)
        self._linked = place
        self._life = 0

    async def _opened(self) -> ShellSession:
        shell = await super()._opened()
        place = self._linked
        if shell.current is None or self._life != place.lives:
            # A new machine knows nothing of earlier variables; only the directory is kept.
            self._life = place.lives
            here = shell.cwd
            shell = self._shell = ShellSession(place.state_dir, place.start)
            shell.cwd = here
            shell.current = Generation(
                number=0,
                env=f"{place.state_dir}/env.0",
                cwd=f"{place.state_dir}/cwd.0",
                script=f"{place.state_dir}/script.0",
            )
        return shell

    def _start(self, rendered: Rendered) -> Startable:
        launch = self._linked.command(
            rendered.script, rendered.command, rendered.generation, rendered.outdated
        )
        return msgspec.structs.replace(launch, interactive=True) if rendered.background else launch
