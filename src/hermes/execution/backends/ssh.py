"""The `ssh` backend: a remote host over one multiplexed connection.

A master connection belongs to the session; every command is a channel in it,
so it costs a round trip and no login. The master is told to leave by itself
when it has been unused for a while: a killed Hermes leaves nothing behind.
Servers allow ten channels by default; what exceeds the limit gets a connection
of its own. The host's files are the host's: this backend isolates nothing.
"""

import asyncio
import contextlib
import os
import re
import shlex
import tempfile
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from hermes.domain.errors import ConfigError, HermesError
from hermes.execution.backend import Backend, EnvironmentRequest
from hermes.execution.host.process import Child, Launch, remove_trees, run
from hermes.execution.remote.environment import LinkedEnvironment, open_linked
from hermes.execution.remote.link import RemoteCall, carry

_SSH_FAILED = 255
_MAX_SOCKET_PATH = 90
"""Unix sockets take 107 bytes, and ssh appends 17 while it makes one."""


class SshOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `terminal.backend_options` may hold."""

    known_hosts: str = ""
    """File of host keys; empty for the usual one."""
    connect_timeout: int = 15
    persist: int = 300
    """Seconds an unused connection is kept."""
    max_sessions: int = 8
    """Channels in the connection; sshd allows 10 (`MaxSessions`)."""
    login: bool = True
    """Take the variables of a login shell."""
    program: str = "ssh"


class SshLink:
    """One multiplexed connection."""

    exposed: tuple[str, ...] = ("/",)
    has_terminal = True
    text_only = False

    def __init__(self, request: EnvironmentRequest, options: SshOptions) -> None:
        self._options = options
        self._terminal = request.terminal
        self._host = request.terminal.ssh_host
        self._env = request.env
        self._directory: Path | None = None
        self._connections = 0
        self._channels: list[Child] = []
        self.name = f"the ssh host `{self._host}`"

    async def open(self) -> int:
        if not await asyncio.to_thread(self._stands):
            await self._connect()
        return self._connections

    async def start(self, call: RemoteCall, sink: Callable[[bytes], None]) -> Child:
        self._channels = [child for child in self._channels if child.running]
        through = len(self._channels) < self._options.max_sessions
        argv = (
            *self._ssh(multiplexed=through),
            *(("-tt",) if call.pty else ("-T",)),
            self._host,
            shlex.join(call.argv),
        )
        child = await carry(argv, call, sink, self._env)
        if through:
            self._channels.append(child)
        return child

    def explain(self, exit_code: int | None, output: str) -> str:
        """Say why a command's end was not seen, and connect anew the next time."""
        if exit_code == _SSH_FAILED:
            self._forget()
        return lost_sentence(self._host, exit_code, output)

    async def close(self) -> None:
        directory, self._directory = self._directory, None
        if directory is None:
            return
        argv = (self._options.program, "-S", str(directory / "s"), "-O", "exit", "--")
        with contextlib.suppress(HermesError):
            launch = Launch(argv=(*argv, self._host), env=self._env)
            await run(launch, timeout=5, max_output=1000)
        await remove_trees(directory)

    async def _connect(self) -> None:
        await self.close()
        self._directory = await asyncio.to_thread(_private_directory)
        argv = (
            *self._ssh(multiplexed=False),
            *("-M", "-T", "-S", str(self._directory / "s")),
            *("-o", f"ControlPersist={self._options.persist}"),
            *(self._host, "true"),
        )
        finished = await run(
            Launch(argv=argv, env=self._env),
            timeout=self._options.connect_timeout + 10,
            max_output=10_000,
        )
        if finished.exit_code:
            await self.close()
            said = "timed out" if finished.timed_out else finished.output
            raise connection_error(self._host, self._terminal.ssh_port, said)
        self._connections += 1

    def _ssh(self, *, multiplexed: bool) -> tuple[str, ...]:
        options, terminal = self._options, self._terminal
        settings = [
            "BatchMode=yes",
            "StrictHostKeyChecking=accept-new",
            f"ConnectTimeout={options.connect_timeout}",
            "ServerAliveInterval=15",
            "ServerAliveCountMax=3",
            "LogLevel=ERROR",
            "EscapeChar=none",
            "RequestTTY=no",
            "ClearAllForwardings=yes",
        ]
        if options.known_hosts:
            settings.append(f"UserKnownHostsFile={_quoted(options.known_hosts)}")
        if terminal.ssh_key:
            settings += [f"IdentityFile={_quoted(terminal.ssh_key)}", "IdentitiesOnly=yes"]
        if multiplexed:
            assert self._directory is not None
            # Without the master this must fail: a silent second connection would
            # hide that the first is gone.
            settings += [f"ControlPath={self._directory}/s", "ControlMaster=no"]
            settings.append("ProxyCommand=false")
        else:
            settings.append("ControlMaster=auto")
        flags = [flag for setting in settings for flag in ("-o", setting)]
        user = ("-l", terminal.ssh_user) if terminal.ssh_user else ()
        return (options.program, *flags, *user, "-p", str(terminal.ssh_port))

    def _stands(self) -> bool:
        return self._directory is not None and (self._directory / "s").exists()

    def _forget(self) -> None:
        if self._directory is not None:
            (self._directory / "s").unlink(missing_ok=True)


def _private_directory() -> Path:
    """Make a directory whose name is short enough for a socket in it."""
    made = tempfile.mkdtemp(prefix=f"hermes-ssh-{os.getpid()}-")
    if len(made) <= _MAX_SOCKET_PATH - 2:
        return Path(made)
    Path(made).rmdir()
    return Path(tempfile.mkdtemp(prefix=f"hermes-ssh-{os.getpid()}-", dir="/tmp"))


def _quoted(path: str) -> str:
    return f'"{path}"' if " " in path else path


_KNOWN: tuple[tuple[str, str, str], ...] = (
    (
        r"Could not resolve hostname",
        "The ssh host `{host}` is not known.",
        "Check `terminal.ssh_host`.",
    ),
    (
        r"REMOTE HOST IDENTIFICATION HAS CHANGED|Host key verification failed",
        "The ssh host `{host}` shows another key than before; nothing was sent.",
        "If the change is legitimate: ssh-keygen -R {host}",
    ),
    (
        r"Permission denied|Too many authentication failures",
        "The ssh host `{host}` refuses the key.",
        (
            "Check `terminal.ssh_user` and `terminal.ssh_key`; the key must be in its"
            " authorized_keys and must not need a passphrase."
        ),
    ),
    (
        r"UNPROTECTED PRIVATE KEY FILE|bad permissions",
        "The private key for ssh host `{host}` is readable by others, so ssh ignores it.",
        "Set its mode to 600.",
    ),
    (
        r"Connection refused",
        "Nothing listens for ssh on `{host}`, port {port}.",
        "Check `terminal.ssh_port` and that sshd runs there.",
    ),
    (
        r"timed out|No route to host|Network is unreachable",
        "The ssh host `{host}` does not answer.",
        "Check the network and `terminal.ssh_host`.",
    ),
)
# Without a master ssh tries to connect by itself, which we have made impossible.
_NOTHING_STARTED = re.compile(
    r"Control socket connect|Session open refused|hello exchange failed|kex_exchange_identification"
)


def connection_error(host: str, port: int, output: str) -> HermesError:
    for pattern, sentence, hint in _KNOWN:
        if re.search(pattern, output):
            kind = HermesError if "answer" in sentence or "listens" in sentence else ConfigError
            return kind(sentence.format(host=host, port=port), hint=hint.format(host=host))
    last = output.strip().rpartition("\n")[2]
    return HermesError(
        f"No connection to the ssh host `{host}`: {last or 'ssh ended without a word'}.",
        hint=f"Try it by hand: ssh -v -p {port} {host}",
    )


def lost_sentence(host: str, exit_code: int | None, output: str) -> str:
    """Return what to say about a command whose end was not seen."""
    if exit_code in {126, 127}:
        return f"There is no bash on the ssh host `{host}`; nothing was run"
    if _NOTHING_STARTED.search(output):
        return f"The connection to the ssh host `{host}` is gone; the command was not started"
    return (
        f"The connection to the ssh host `{host}` was lost; whether the command took effect"
        " is unknown, and it may still be running there"
    )


async def _open_environment(request: EnvironmentRequest) -> LinkedEnvironment:
    if not request.terminal.ssh_host:
        raise ConfigError(
            "The ssh backend does not know which host to use.", hint="Set `terminal.ssh_host`."
        )
    options = request.options(SshOptions)
    return await open_linked(SshLink(request, options), request, login=options.login)


BACKEND = Backend(open=_open_environment)
