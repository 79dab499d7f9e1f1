"""Stands in for the `apptainer` program: the same words, executed through bubblewrap.

`instance start` makes a bubblewrap sandbox with its own process and mount
namespaces that stays; `exec instance://` enters it with nsenter; `instance
stop` ends it. State is kept in $APPTAINER_STUB_DIR. An overlay directory is
bound at /root and /workspace instead of being laid over the whole image, and
the image is this machine's /usr. Unknown flags are errors, as in the original.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

FLAGS = {"--containall", "--no-home", "--writable-tmpfs", "--net"}
VALUES = {"--overlay", "--bind", "--memory", "--cpus", "--network"}
STATE = Path(os.environ.get("APPTAINER_STUB_DIR", "."))


def fail(text: str) -> None:
    sys.stderr.write(f"FATAL:   {text}\n")
    sys.exit(255)


def record(name: str) -> Path:
    return STATE / f"{name}.json"


def start(words: list[str]) -> None:
    flags: dict[str, list[str]] = {}
    while words and words[0].startswith("-"):
        flag = words.pop(0)
        if flag in VALUES:
            flags.setdefault(flag, []).append(words.pop(0))
        elif flag in FLAGS:
            flags.setdefault(flag, []).append("")
        else:
            fail(f"unknown flag: {flag}")
    image, name = words
    if record(name).exists():
        fail(f"instance {name} already exists")
    if image.startswith("docker://missing"):
        fail(f"Unable to handle {image} uri: while building SIF: manifest unknown")
    if "--overlay" not in flags and "--writable-tmpfs" not in flags:
        fail("the stub has no read-only instances")
    pid, holder = hold(name, flags)
    facts = {"pid": pid, "holder": holder, "image": image, "flags": flags}
    record(name).write_text(json.dumps(facts))
    sys.stderr.write("INFO:    instance started successfully\n")


def hold(name: str, flags: dict[str, list[str]]) -> tuple[int, int]:
    argv = ["bwrap", "--unshare-pid", "--unshare-ipc", "--proc", "/proc", "--dev", "/dev"]
    argv += ["--unshare-net"] if "--network" in flags else []
    for path in ("usr", "etc"):
        argv += ["--ro-bind", f"/{path}", f"/{path}"]
    for path in ("bin", "sbin", "lib", "lib64"):
        argv += ["--symlink", f"usr/{path}", f"/{path}"]
    argv += ["--tmpfs", "/tmp", "--tmpfs", "/var"]
    for inside in ("root", "workspace"):
        if "--overlay" in flags:
            upper = Path(flags["--overlay"][0], "upper", inside)
            upper.mkdir(parents=True, exist_ok=True)
            argv += ["--bind", str(upper), f"/{inside}"]
        else:
            argv += ["--tmpfs", f"/{inside}"]
    for bind in flags.get("--bind", []):
        source, inside, *mode = bind.split(":")
        argv += ["--ro-bind" if mode == ["ro"] else "--bind", source, inside]
    read, write = os.pipe()
    argv += ["--info-fd", str(write), "--chdir", "/", "sleep", "infinity"]
    holder = subprocess.Popen(
        argv,
        pass_fds=[write],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=(STATE / f"{name}.err").open("wb"),
        start_new_session=True,
    )
    os.close(write)
    with os.fdopen(read) as info:
        text = info.read()
    if not text:
        fail(f"container creation failed: {(STATE / f'{name}.err').read_text()}")
    pid = int(json.loads(text)["child-pid"])
    # It is told of before it stands: who enters then finds no programs.
    until = time.monotonic() + 20
    while not stands(pid) and holder.poll() is None and time.monotonic() < until:
        time.sleep(0.005)
    return pid, holder.pid


def stands(pid: int) -> bool:
    try:
        inside = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return any(Path(f"/proc/{each}/comm").read_text() == "sleep\n" for each in inside)
    except OSError:
        return False


def execute(words: list[str]) -> None:
    target, *command = words
    path = record(target.removeprefix("instance://"))
    if not target.startswith("instance://") or not path.exists():
        fail(f"no instance found with name {target}")
    pid = json.loads(path.read_text())["pid"]
    if not Path(f"/proc/{pid}").exists():
        path.unlink()
        fail(f"no instance found with name {target}")
    enter = ["nsenter", "-t", str(pid), "-m", "-p", "-i", "--wdns=/root"]
    if os.getuid():
        enter += ["-U", "--preserve-credentials"]
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}
    os.execvpe("nsenter", [*enter, *command], {**environment, "APPTAINER_NAME": target})


def stop(words: list[str]) -> None:
    path = record(words[0])
    if not path.exists():
        fail("no instance found")
    facts = json.loads(path.read_text())
    for pid in (facts["pid"], facts["holder"]):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    path.unlink()


def main(words: list[str]) -> None:
    match words:
        case ["instance", "start", *rest]:
            start(rest)
        case ["instance", "stop", *rest]:
            stop(rest)
        case ["exec", *rest]:
            execute(rest)
        case _:
            fail(f'unknown command "{" ".join(words)}"')


if __name__ == "__main__":
    main(sys.argv[1:])
