"""A real Docker engine on a socket of its own, with one small image."""

import io
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

IMAGE = "hermes-test"
_START_SECONDS = 40.0


def missing() -> str:
    """Return why no engine can be started here; empty if one can."""
    if os.geteuid() != 0:
        return "starting a Docker engine needs root"
    absent = [name for name in ("dockerd", "docker", "busybox") if shutil.which(name) is None]
    return f"{', '.join(absent)} not installed (scripts/test-services.sh)" if absent else ""


@contextmanager
def docker_engine() -> Iterator[str]:
    """Start an engine and return its address."""
    # Not below pytest's directory: the path of a socket has at most 107 characters.
    with tempfile.TemporaryDirectory(prefix="hermes-dockerd-", ignore_cleanup_errors=True) as base:
        address = f"unix://{base}/docker.sock"
        with Path(base, "log").open("wb") as log:
            daemon = subprocess.Popen(
                [
                    "dockerd",
                    "--iptables=false",
                    "--ip6tables=false",
                    "--bridge=none",
                    f"--data-root={base}/data",
                    f"--exec-root={base}/exec",
                    f"--pidfile={base}/pid",
                    "-H",
                    address,
                ],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            _wait(daemon, address, Path(base, "log"))
            docker(address, "import", "-", IMAGE, stdin=_root_filesystem())
            yield address
        finally:
            _remove_containers(address)
            daemon.terminate()
            daemon.wait(30)


def docker(address: str, *arguments: str, stdin: bytes | None = None) -> str:
    """Run a docker command against the engine."""
    done = subprocess.run(
        ["docker", "-H", address, *arguments], input=stdin, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def _wait(daemon: "subprocess.Popen[bytes]", address: str, log: Path) -> None:
    until = time.monotonic() + _START_SECONDS
    ask = ["docker", "-H", address, "version"]
    while subprocess.run(ask, capture_output=True, check=False).returncode != 0:
        if daemon.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"dockerd did not start: {log.read_text()[-2000:]}")
        time.sleep(0.1)


def _remove_containers(address: str) -> None:
    listed = subprocess.run(
        ["docker", "-H", address, "ps", "-aq"], capture_output=True, text=True, check=False
    )
    if listed.stdout.split():
        docker(address, "rm", "-f", *listed.stdout.split())


def _root_filesystem() -> bytes:
    """Return a tar file with bash, its libraries and busybox for everything else."""
    bash = shutil.which("bash") or "/bin/bash"
    linked = subprocess.run(["ldd", bash], capture_output=True, text=True, check=True).stdout
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in ("bin", "etc", "tmp", "var", "proc", "sys", "dev", "run", "root", "usr/bin"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        for path in re.findall(r"(/\S+) \(0x", linked):
            tar.add(os.path.realpath(path), path.lstrip("/"))
        tar.add(os.path.realpath(bash), "bin/bash")
        busybox = shutil.which("busybox") or "/bin/busybox"
        tar.add(os.path.realpath(busybox), "bin/busybox")
        applets = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True)
        for applet in set(applets.stdout.split()) - {"bash", "busybox"}:
            entry = tarfile.TarInfo(f"bin/{applet}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(entry)
        _add_setuid(tar, busybox)
        _add_text(tar, "etc/passwd", "root:x:0:0:root:/root:/bin/bash\n")
        _add_text(tar, "etc/group", "root:x:0:\n")
    return buffer.getvalue()


def _add_setuid(tar: tarfile.TarFile, busybox: str) -> None:
    with Path(busybox).open("rb") as file:
        entry = tar.gettarinfo(fileobj=file, arcname="bin/setuid-busybox")
        entry.mode, entry.uid, entry.gid = 0o4755, 0, 0
        tar.addfile(entry, file)


def _add_text(tar: tarfile.TarFile, name: str, text: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(text)
    tar.addfile(entry, io.BytesIO(text.encode()))
