"""A real sshd on loopback with its own keys and configuration."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

CONFIG = """\
ListenAddress 127.0.0.1
Port {port}
HostKey {directory}/host_key
PidFile none
AuthorizedKeysFile {directory}/authorized_keys
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
PermitRootLogin prohibit-password
PermitUserEnvironment no
PrintMotd no
LogLevel ERROR
MaxStartups 100
SetEnv HOME={directory}/home
"""


class Sshd(Struct, kw_only=True):
    directory: Path
    program: str
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def options(self) -> dict[str, object]:
        """Options for the backend."""
        return {
            "ssh_host": "127.0.0.1",
            "ssh_port": self.port,
            "ssh_user": pwd.getpwuid(os.getuid()).pw_name,
            "ssh_key": str(self.directory / "key"),
            "known_hosts": str(self.directory / "known_hosts"),
            "connect_timeout": 10,
        }

    def start(self) -> None:
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.program, "-D", "-e", "-f", str(self.directory / "sshd_config")],
                stdin=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
        until = time.monotonic() + 20
        while True:
            with socket.socket() as probe:
                probe.settimeout(5)
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    assert probe.recv(4) == b"SSH-"
                    return
            if self.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError((self.directory / "log").read_text())
            time.sleep(0.01)

    def stop(self) -> None:
        """End it and every connection it serves."""
        if self.process is None:
            return
        # Before 9.8 connections are children in the listener's session, each a leader
        # of its own group; so find them by descent.
        for pid in [*_descendants(self.process.pid), self.process.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait(10)
        self.process = None


def _descendants(parent: int) -> list[int]:
    """Return the sshd processes under `parent`, not the commands they run."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = status.read_text().partition("(")[2].rpartition(") ")
        except OSError:
            continue
        if int(rest.split()[1]) == parent and name.startswith("sshd"):
            pid = int(status.parent.name)
            found += [*_descendants(pid), pid]
    return found


def sshd_missing() -> str:
    """Return why there can be no sshd here; empty if there can."""
    for program in ("ssh", "ssh-keygen"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    if _program() is None:
        return "openssh-server is not installed"
    return ""


def _program() -> str | None:
    return shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/sbin:/usr/bin")


@contextmanager
def running_sshd(directory: Path) -> Iterator[Sshd]:
    """Run sshd in `directory`."""
    program = _program()
    assert program is not None
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd insists when it is root
    (directory / "home").mkdir()
    for name in ("host_key", "key"):
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name)]
        subprocess.run(argv, check=True)
    shutil.copy(directory / "key.pub", directory / "authorized_keys")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = CONFIG.format(port=port, directory=directory)
    (directory / "sshd_config").write_text(config)
    server = Sshd(directory=directory, program=program, port=port)
    server.start()
    try:
        yield server
    finally:
        server.stop()
