"""What the kernel keeps from commands in the sandbox, and how much they may use."""

import asyncio
import ctypes
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from fakes.boxes import Boxes, says, sh
from fakes.machines import request_for, until
from fakes.person import Person
from hermes.domain.settings.execution import Terminal
from hermes.execution.backends.sandbox.footprint import Footprint
from hermes.execution.backends.sandbox.holder import Holder
from hermes.execution.backends.sandbox.mounts import lay_out, prepare
from hermes.execution.host.process import Launch, remove_trees

pytestmark = pytest.mark.usefixtures("bubblewrap")

_CALL = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(*map(int, sys.argv[1:]))
print("done" if result >= 0 else os.strerror(ctypes.get_errno()))
"""
_X86_64 = {
    "keyctl": "250 0 -3 0",
    "add_key": "248 0 0 0 0 -3",
    "request_key": "249 0 0 0 -3",
    "io_uring_setup": "425 1 0",
    "userfaultfd": "323 1",
    "bpf": "321 0 0 0",
    "perf_event_open": "298 0 0 0 0 0",
    "process_vm_readv": "310 1 0 0 0 0 0",
    "ptrace attach": "101 16 1 0 0",
    "ptrace seize": "101 16902 1 0 0",
    "open_by_handle_at": "304 -100 0 0",
    "mount": "165 0 0 0 0 0",
    "fsopen": "430 0 0",
    "kexec_load": "246 0 0 0 0",
    "fanotify_init": "300 0 0",
    "pidfd_getfd": "438 0 0 0",
    "memfd_secret": "447 0",
    "large segment": "29 0 65537 950",
    "huge segment": f"29 0 {1 << 32} 950",
    "AF_VSOCK": "41 40 1 0",
    "AF_ALG": "41 38 5 0",
    "AF_PACKET": "41 17 3 0",
}


@pytest.fixture
async def boxes(tmp_path: Path) -> AsyncIterator[Boxes]:
    async with asyncio.timeout(55):
        made = Boxes("sandbox", tmp_path / "hermes", container_memory=512, max_file_mb=50)
        yield made
        await made.pool.close()


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of x86_64")
async def test_system_calls_that_nothing_needs_are_refused(boxes: Boxes) -> None:
    env = await boxes.open()
    await env.write("/workspace/call.py", _CALL.encode())
    script = "; ".join(f"python3 call.py {words}" for words in _X86_64.values())
    answers = (await says(env, script)).splitlines()
    allowed = {"Operation not permitted", "Address family not supported by protocol"}
    allowed |= {"Invalid argument"}
    for name, answer in zip(_X86_64, answers, strict=True):
        assert answer in allowed, name


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of x86_64")
async def test_a_database_gets_the_segment_that_it_needs(boxes: Boxes) -> None:
    env = await boxes.open()
    await env.write("/workspace/call.py", _CALL.encode())
    assert await says(env, "python3 call.py 29 0 65536 950") == "done"


@pytest.mark.skipif(os.uname().machine not in {"x86_64", "aarch64"}, reason="no filter")
async def test_nobody_is_made_to_wait_for_a_file_by_a_lease_on_it(boxes: Boxes) -> None:
    env = await boxes.open()
    lease = "import fcntl; fcntl.fcntl(open('f', 'w'), fcntl.F_SETLEASE, fcntl.F_WRLCK)"
    assert "Operation not permitted" in await says(env, f'python3 -c "{lease}"')
    duplicate = "import fcntl; print(fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 50))"
    assert await says(env, f'python3 -c "{duplicate}"') == "50"


async def test_programs_for_another_architecture_find_no_system_calls(boxes: Boxes) -> None:
    env = await boxes.open()
    await env.write("/workspace/call.py", _CALL.encode())
    x32 = 0x40000000 + 39
    assert await says(env, f"python3 call.py {x32}") == "Function not implemented"


async def test_the_holder_is_under_the_filter_too(boxes: Boxes) -> None:
    """Otherwise a debugger could carry on inside of it."""
    env = await boxes.open()
    assert "Seccomp:\t2" in await says(env, "cat /proc/1/status")
    assert "Seccomp:\t2" in await says(env, "cat /proc/self/status")


async def test_keys_of_the_session_that_started_hermes_are_not_there(boxes: Boxes) -> None:
    libc = ctypes.CDLL(None)
    description = f"hermes-test-{os.getpid()}".encode()
    if libc.syscall(248, b"user", description, b"secret", 6, -3) < 0:
        pytest.skip("no keyrings here")
    env = await boxes.open()
    assert description.decode() not in await says(env, "cat /proc/keys 2>/dev/null; true")


async def test_a_debugger_may_start_its_program(boxes: Boxes) -> None:
    env = await boxes.open()
    result = await sh(env, "command -v strace >/dev/null || exit 0; strace -f -o log sh -c 'true'")
    assert result.exit_code == 0, result.output


async def test_watches_of_files_are_limited(boxes: Boxes) -> None:
    env = await boxes.open()
    limits = await says(env, "cd /proc/sys/user; cat max_inotify_instances max_inotify_watches")
    assert limits.split() == ["128", "65536"]
    assert (await sh(env, "echo 99999 > /proc/sys/user/max_inotify_watches")).exit_code != 0


async def test_a_file_may_only_be_so_large(boxes: Boxes) -> None:
    env = await boxes.open()
    result = await sh(env, "head -c 80m /dev/zero > big; stat -c %s big")
    assert int(result.output.split()[-1]) <= 50 << 20


async def test_a_session_may_only_fill_so_much_of_the_disk(tmp_path: Path) -> None:
    boxes = Boxes("sandbox", tmp_path / "hermes", container_disk=20)
    env = await boxes.open()
    full = await sh(
        env, "sleep 2; for i in $(seq 120); do head -c 5m /dev/zero > f$i; sleep 0.2; done"
    )
    assert full.exit_code
    assert "of 20 MB of disk. Everything that ran in it was ended" in full.output
    assert len(list((boxes.directory() / "workspace").iterdir())) < 120
    await sh(env, "rm f*; sleep 2")
    assert await says(env, "echo room") == "room"
    await boxes.pool.close()


async def test_what_is_over_the_limit_may_run_as_long_as_it_does_not_grow(person: Person) -> None:
    boxes = Boxes(
        "sandbox",
        person.boxes.home,
        base_env={"HOME": str(person.home)},
        project=str(person.project),
        container_disk=20,
    )
    env = await boxes.pool.get("main", "full", str(person.project))
    fill = "head -c 40m /dev/zero > ~/big; echo x > ~/first; sleep 25"
    assert "Everything that ran in it was ended" in (await sh(env, f"sleep 2; {fill}")).output
    over = " of 20 MB of disk. Delete something."  # it may have been ended half-way
    in_the_project = "for i in 1 2 3 4; do head -c 20m /dev/zero > f$i; sleep 1; done; echo over"
    done = await sh(env, in_the_project)
    assert done.output.startswith("over\n")
    assert over in done.output
    assert over in (await sh(env, "echo x > ~/second; echo over")).output
    assert await says(env, "rm ~/big; echo room") == "room"
    again = await sh(env, f"sleep 2; {fill}")
    assert "Everything that ran in it was ended" in again.output
    await boxes.pool.close()


async def test_what_is_over_the_limit_and_grows_by_little_is_ended(tmp_path: Path) -> None:
    boxes = Boxes("sandbox", tmp_path / "hermes", container_disk=20)
    env = await boxes.open()
    await sh(env, "sleep 2; head -c 40m /dev/zero > big; sleep 9")
    trickle = "for i in $(seq 90); do head -c 500k /dev/zero > f$i; sleep 0.2; done"
    assert "Everything that ran in it was ended" in (await sh(env, trickle)).output
    await boxes.pool.close()


async def test_so_many_empty_files_fill_the_disk_as_well(tmp_path: Path) -> None:
    boxes = Boxes("sandbox", tmp_path / "hermes", container_disk=20)
    env = await boxes.open()
    thousand = "seq $i.000 0.001 $i.999 | xargs touch"
    full = await sh(env, f"sleep 2; cd /tmp; for i in $(seq 60); do {thousand}; sleep 0.2; done")
    assert full.exit_code
    assert "of 20 MB of disk. Everything that ran in it was ended" in full.output
    await boxes.pool.close()


async def test_no_limit_of_memory_is_none(tmp_path: Path) -> None:
    boxes = Boxes("sandbox", tmp_path / "hermes", container_memory=0)
    env = await boxes.open()
    assert await says(env, "ulimit -d; python3 -c 'print(len(bytes(80 << 20)))'") == (
        f"unlimited\n{80 << 20}"
    )
    await boxes.pool.close()


async def test_memory_that_processes_share_counts_once(tmp_path: Path) -> None:
    layout = lay_out(request_for("sandbox", {"home": str(tmp_path), "container_memory": 300}))
    await asyncio.to_thread(prepare, layout)
    holder = await Holder.start(replace(layout, terminal=Terminal()))
    share = (
        "import mmap, os, time; x = mmap.mmap(-1, 80 << 20); x.write(bytes(80 << 20));"
        " [os.fork() for _ in range(3)]; x[:]; print(1, flush=True); time.sleep(50)"
    )
    said = bytearray()
    launch = Launch(
        argv=holder.command(f"exec python3 -c '{share}'", pty=False),
        env={"PATH": "/usr/bin:/bin"},
        interactive=True,
    )
    child = await launch.start(said.extend)
    for _ in range(500):
        await asyncio.sleep(0.02)
        if said.count(b"1") == 8:
            break
    footprint = Footprint(layout)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2.5):
            await footprint.watch(_Unlimited(holder))  # type: ignore[arg-type]
    assert footprint.note == ""
    await holder.stop()
    await child.close(0.0)


async def test_files_without_a_name_count_too(tmp_path: Path) -> None:
    boxes = Boxes("sandbox", tmp_path / "hermes", container_disk=20)
    env = await boxes.open()
    hide = """
import os, time
for number in range(60):
    os.unlink((file := open("x", "wb", buffering=0)).name)
    globals()[f"f{number}"] = file
    file.write(bytes(5 << 20))
    time.sleep(0.2)
"""
    await env.write("hide.py", hide.encode())
    full = await sh(env, "python3 hide.py")
    assert "of 20 MB of disk. Everything that ran in it was ended" in full.output
    assert await says(env, "echo room") == "room"
    await boxes.pool.close()


_FILL = """
import array, ctypes, os, resource, socket, threading, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
kept = []

def put(hide):
    file = os.open("x", os.O_CREAT | os.O_RDWR)
    os.unlink("x")
    os.write(file, bytes(10 << 20))
    hide(file)
    time.sleep(0.2)

def send(file):
    kept.append(socket.socketpair())
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file]))
    kept[-1][0].sendmsg([b"x"], [rights])
    os.close(file)

def map_a_page(file):
    libc.mmap(None, 4096, 1, 1, file, 0)
    os.close(file)

def fill(hide=kept.append):
    for _ in range(60):
        put(hide)

def open_many():
    most = min(10_000, resource.getrlimit(resource.RLIMIT_NOFILE)[1] - 100)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most + 50, most + 50))
    for _ in range(21_000 // most + 1):
        if not os.fork():
            kept.extend(os.dup(0) for _ in range(most))
            time.sleep(20)
            os._exit(0)

time.sleep(2)
"""
HIDEOUTS = {
    "on their way": "fill(send)",
    "mapped by a page": "fill(map_a_page)",
    "behind many others": "open_many(); time.sleep(1); os.fork() or fill(); os.wait()",
    "of a process that shows nothing": "libc.prctl(4, 0, 0, 0, 0); fill()",
    "of a later thread": "threading.Thread(target=fill).start(); libc.syscall(EXIT, 0)",
}


@pytest.mark.parametrize("where", HIDEOUTS)
async def test_files_without_a_name_count_wherever_they_are(tmp_path: Path, where: str) -> None:
    boxes = Boxes("sandbox", tmp_path / "hermes", container_disk=20)
    env = await boxes.open()
    script = f"EXIT = {60 if os.uname().machine == 'x86_64' else 93}{_FILL}{HIDEOUTS[where]}"
    await env.write("hide.py", script.encode())
    full = await sh(env, "python3 hide.py")
    assert "of 20 MB of disk." in full.output
    assert "Everything that ran in it was ended" in full.output
    assert await says(env, "echo room") == "room"
    await boxes.pool.close()


async def test_what_lies_below_a_folder_that_shows_nothing_counts(tmp_path: Path) -> None:
    boxes = Boxes("sandbox", tmp_path / "hermes", container_disk=20)
    env = await boxes.open()
    fill = "for i in $(seq 60); do head -c 10m /dev/zero > f$i; sleep 0.2; done"
    full = await sh(env, f"mkdir -p h/b; chmod 111 h; cd h/b; sleep 2; {fill}")
    assert "of 20 MB of disk. Everything that ran in it was ended" in full.output
    assert await says(env, "chmod 755 /workspace/h; echo room") == "room"
    await boxes.pool.close()


async def test_what_a_command_leaves_running_is_watched(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    boxes = Boxes("sandbox", tmp_path / "hermes", container_disk=20)
    env = await boxes.open()
    fill = "for i in $(seq 60); do head -c 10m /dev/zero > f$i; sleep 0.2; done; touch full"
    await sh(env, f"sleep 2; (setsid bash -c '{fill}' >/dev/null 2>&1 &)")

    async def ended() -> bool:
        assert not (boxes.directory() / "workspace/full").exists()
        return "of 20 MB of disk" in caplog.text

    async def usable() -> bool:
        return await says(env, "test ! -e full && echo room") == "room"

    await until(ended)
    await until(usable)
    await boxes.pool.close()


async def test_what_others_write_is_not_of_a_sandbox(tmp_path: Path) -> None:
    boxes = Boxes("sandbox", tmp_path / "hermes", container_disk=20)
    env = await boxes.open()
    running = asyncio.ensure_future(sh(env, "echo mine > f; sleep 6; echo over"))
    for number in range(25):
        await asyncio.to_thread((tmp_path / f"{number}").write_bytes, bytes(10 << 20))
        await asyncio.sleep(0.1)
    assert (await running).output == "over\n"
    await boxes.pool.close()


async def test_what_has_ended_leaves_nothing_inside(boxes: Boxes) -> None:
    env = await boxes.open()
    await sh(env, "for i in $(seq 60); do (sleep 0.01 &); done; sleep 0.3")
    assert await says(env, "ps axo stat | grep -c Z") == "0"


async def test_all_processes_of_a_session_share_its_memory(tmp_path: Path) -> None:
    """Each of them stays below the limit; together they do not."""
    boxes = Boxes("sandbox", tmp_path / "hermes", container_memory=200)
    env = await boxes.open()
    hog = "python3 -c 'x = bytearray(100 << 20); import time; time.sleep(6)'"
    result = await sh(env, f"for i in 1 2 3 4 5; do {hog} & done; wait; echo over", timeout=40)
    alive = await says(env, "pgrep -c python3; true")
    assert alive in {"0", ""}
    assert "MB of memory" in result.output or "over" in result.output
    assert await says(env, "echo usable") == "usable"
    await boxes.pool.close()


HOGS = {
    "its own": "x = bytearray(80 << 20)",
    "shared": "import mmap; x = mmap.mmap(-1, 80 << 20); x.write(bytes(80 << 20))",
    "in sockets": (
        "import resource, socket; resource.setrlimit(7, (4000, 4000));"
        " x = [socket.socketpair() for _ in range(900)]"
    ),
    "a file in memory": "import os; os.write(os.memfd_create('x'), bytes(80 << 20))",
}


@pytest.mark.parametrize("memory", HOGS)
async def test_memory_is_watched_where_the_kernel_sets_no_limit_for_all(
    tmp_path: Path, memory: str
) -> None:
    layout = lay_out(request_for("sandbox", {"home": str(tmp_path), "container_memory": 150}))
    await asyncio.to_thread(prepare, layout)
    holder = await Holder.start(replace(layout, terminal=Terminal()))  # the kernel allows more
    hog = f'python3 -c "{HOGS[memory]}; import time; time.sleep(50)"'
    hogs = f"for i in 1 2 3; do {hog} & done; wait"
    launch = Launch(
        argv=holder.command(hogs, pty=False), env={"PATH": "/usr/bin:/bin"}, interactive=True
    )
    child = await launch.start(lambda _: None)
    footprint = Footprint(layout)
    await footprint.watch(_Unlimited(holder))  # type: ignore[arg-type]
    assert "of 150 MB of memory" in footprint.note
    await holder.stop()
    await child.close(0.0)


class _Unlimited:
    """A sandbox without a control group, as most users have it."""

    limits_memory = False

    def __init__(self, holder: Holder) -> None:
        self.root, self.tasks = holder.root, holder.tasks


async def test_a_tree_as_deep_as_you_like_ends_nobody(tmp_path: Path) -> None:
    boxes = Boxes("sandbox", tmp_path / "hermes")
    env = await boxes.open()
    dig = "import os\nfor _ in range(4000):\n    os.mkdir('d'); os.chdir('d')"
    for place in ("/run/hermes", "/workspace"):
        result = await sh(env, f'cd {place} && python3 -c "{dig}"')
        assert result.exit_code == 0, result.output
    await env.close()
    assert not (boxes.directory() / "state").exists()
    assert await says(env, "echo usable") == "usable"
    await boxes.pool.close()
    await remove_trees(tmp_path / "hermes")  # pytest could not
