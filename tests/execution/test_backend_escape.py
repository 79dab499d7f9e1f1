"""What a command must not be able to do, on every backend that says it isolates."""

import asyncio
import contextlib
import os
import shutil
import socket
import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from fakes.boxes import Boxes, says, sh
from fakes.hermes_process import processes_with
from fakes.toolbox import gone
from hermes.domain.errors import HermesError
from hermes.domain.ports.execution import ShellRun

pytestmark = [
    pytest.mark.parametrize(
        "boxes",
        ["sandbox", pytest.param("docker", marks=pytest.mark.xdist_group("docker"))],
        indirect=True,
    ),
]

SECRET = "sk-host-secret"
HOST_HOME = Path("~").expanduser()


@pytest.fixture(autouse=True)
async def bounded() -> AsyncIterator[None]:
    async with asyncio.timeout(55):
        yield


@pytest.fixture
def listener() -> Iterator[int]:
    """A port of the host's loopback at which every visitor leaves a trace."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        server.settimeout(0.05)
        stop = threading.Event()
        visitors: list[object] = []

        def serve() -> None:
            while not stop.is_set():
                try:
                    visitors.append(server.accept())
                except TimeoutError:
                    continue

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        stop.set()
        thread.join()
        assert not visitors


async def appeared(marker: str) -> list[int]:
    """Wait for processes with `marker` in their command line."""
    while True:
        found = await asyncio.to_thread(processes_with, marker)
        if found:
            return found
        await asyncio.sleep(0.01)


def exists(path: str) -> bool:
    return Path(path).exists()


def mode_of(path: str) -> int:
    return Path(path).stat().st_mode


async def test_the_backend_calls_itself_isolated(boxes: Boxes) -> None:
    assert (await boxes.open()).exposed == ()


async def test_the_hermes_home_is_out_of_sight(boxes: Boxes) -> None:
    env = await boxes.open()
    for way in (f"{boxes.home}", f"/proc/1/root{boxes.home}", f"/workspace/../../..{boxes.home}"):
        assert (await sh(env, f"ls {way}; cat {way}/.env")).exit_code != 0
    assert SECRET not in await says(env, "grep -rs host-secret / --include=.env 2>/dev/null")
    for path in (boxes.home / ".env", f"/proc/1/root{boxes.home}/.env"):
        with pytest.raises(HermesError):
            await env.read(str(path))


async def test_places_where_people_keep_secrets_are_out_of_sight(boxes: Boxes) -> None:
    env = await boxes.open()
    listed = await says(env, f"cd /; ls -A {HOST_HOME} /home/* /var/run/docker.sock 2>/dev/null")
    for name in (".ssh", ".bashrc", ".pyenv", "docker.sock"):
        assert name not in listed
    with pytest.raises(HermesError):
        await env.read("/etc/shadow")
    assert (await sh(env, "cat /etc/shadow")).exit_code != 0


async def test_one_session_never_sees_the_files_of_another(boxes: Boxes) -> None:
    one, two = await boxes.open("one"), await boxes.open("two")
    await sh(one, "echo mine > /workspace/f; echo mine > /tmp/f; echo mine > ~/f")
    assert "mine" not in await says(two, "cat /workspace/f /tmp/f ~/f 2>/dev/null; ls -R /tmp ~ .")
    their = boxes.directory("one") / "workspace/f"
    assert their.read_text() == "mine\n"
    assert (await sh(two, f"cat {their}")).exit_code != 0
    with pytest.raises(HermesError):
        await two.read(str(their))


async def test_nothing_of_the_system_can_be_written(boxes: Boxes) -> None:
    env = await boxes.open()
    for place in ("/", "/etc", "/usr", "/bin", "/usr/bin", "/var", "/proc", "/sys"):
        result = await sh(env, f"touch {place}/hermes-was-here")
        assert result.exit_code != 0, place
        with pytest.raises(HermesError):
            await env.write(f"{place}/hermes-was-here", b"x")
    assert (await sh(env, "echo x >> /etc/passwd")).exit_code != 0
    assert (await sh(env, "echo x > /proc/sys/kernel/core_pattern")).exit_code != 0
    assert (await sh(env, "echo b > /proc/sysrq-trigger")).exit_code != 0
    assert not exists("/etc/hermes-was-here")


async def test_there_is_no_network(boxes: Boxes, listener: int) -> None:
    env = await boxes.open()
    for host in ("127.0.0.1", socket.gethostbyname("localhost"), "0.0.0.0", "192.0.2.1"):
        result = await sh(env, f"timeout 3 bash -c 'echo hi >/dev/tcp/{host}/{listener}'")
        assert result.exit_code != 0, host
    names = await says(env, "cut -d: -f1 -s /proc/net/dev")
    assert set(names.split()) - {"Inter-|", "face"} <= {"lo", "tunl0", "sit0", "ip6tnl0"}


async def test_commands_of_a_session_share_a_network_of_their_own(boxes: Boxes) -> None:
    env = await boxes.open()
    await env.write("/workspace/page", b"hello")
    server = await env.spawn(ShellRun(script="busybox httpd -f -p 127.0.0.1:8123"))
    fetch = "busybox wget -qO- http://127.0.0.1:8123/page"
    result = await sh(env, f"for i in $(seq 100); do {fetch} && break; sleep 0.05; done")
    assert result.output.endswith("hello")
    await env.kill(server.id)


async def test_a_fork_bomb_stays_inside_and_ends(boxes: Boxes) -> None:
    env = await boxes.open()
    bomb = "b() { b hermes-bomb | b hermes-bomb & }; b; sleep 20"
    await sh(env, bomb, timeout=2)
    other = await boxes.open("other")
    assert await says(other, "echo fine") == "fine"
    # At the latest the second command finds a place that works again.
    results = [await sh(env, "echo usable") for _ in range(2)]
    assert "usable" in results[-1].output
    tasks = await says(env, "ls -d /proc/[0-9]* | wc -l")
    assert int(tasks) < 20


async def test_a_program_that_fills_memory_is_ended(boxes: Boxes) -> None:
    env = await boxes.open()
    result = await sh(env, "x=$(head -c 1200m /dev/zero | tr '\\0' x); echo survived ${#x}")
    assert "survived 1258" not in result.output
    assert await says(env, "echo usable") == "usable"


async def test_ram_disks_are_small(boxes: Boxes) -> None:
    env = await boxes.open()
    result = await sh(env, "head -c 300m /dev/zero > /dev/shm/x; stat -c %s /dev/shm/x")
    size = int(result.output.split()[-1]) if result.output.split()[-1].isdigit() else 0
    assert size <= 64 << 20
    await sh(env, "rm -f /dev/shm/x")


async def test_nothing_runs_on_after_closing(boxes: Boxes) -> None:
    env = await boxes.open()
    # The other backend's run of this test may be going on in another process.
    mark = f"hermes-left-{uuid.uuid4().hex}"
    stubborn = f"trap '' TERM HUP; : {mark}-{{}}; sleep 300; true"
    await env.spawn(ShellRun(script=f'bash -c "{stubborn.format(1)}"'))
    await sh(env, f'bash -c "{stubborn.format(2)}" >/dev/null &')
    await sh(env, f'(setsid bash -c "{stubborn.format(3)}" >/dev/null &)')
    left: set[int] = set()
    for number in (1, 2, 3):
        left.update(await appeared(f": {mark}-{number}; sleep"))
    await env.close()
    for pid in left:
        await gone(pid)
    assert processes_with(f": {mark}-") == []


async def test_a_timeout_and_a_cancel_end_the_group_inside(boxes: Boxes) -> None:
    env = await boxes.open()
    timed = await sh(env, "trap '' TERM; : hermes-timed; sleep 300; sleep 300", timeout=0.5)
    assert (timed.exit_code, timed.timed_out) == (124, True)
    started = asyncio.Event()
    task = asyncio.ensure_future(
        env.run(ShellRun(script="echo on; : hermes-cut; sleep 300"), lambda _: started.set())
    )
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await says(env, "ps | grep -c '[s]leep 300'") == "0"


LINKS = {
    "absolute": "ln -s {home}/.env link",
    "climbing": "ln -s ../../../../../../../..{home}/.env link",
    "directory": "ln -s {home} d; ln -s d/.env link",
    "through proc": "ln -s /proc/1/root{home}/.env link",
    "through a descriptor": "ln -s /proc/self/cwd/../../..{home}/.env link",
}


@pytest.mark.parametrize("how", LINKS)
async def test_links_made_inside_lead_nowhere_outside(boxes: Boxes, how: str) -> None:
    env = await boxes.open()
    script = LINKS[how].format(home=boxes.home)
    assert (await sh(env, f"cd /workspace; rm -f link; {script}")).exit_code == 0
    with pytest.raises(HermesError):
        await env.read("/workspace/link")
    with pytest.raises(HermesError):
        await env.list_dir("/workspace/link")
    with contextlib.suppress(HermesError):
        await env.write("/workspace/link", b"overwritten")
    assert SECRET in (boxes.home / ".env").read_text()
    assert sorted(path.name for path in boxes.home.iterdir()) == [".env", "sandboxes"]


async def test_dots_in_paths_lead_nowhere_outside(boxes: Boxes) -> None:
    env = await boxes.open()
    up = "../" * 12
    for path in (f"{up}{boxes.home}/.env", f"/workspace/{up}{boxes.home}/.env"):
        with pytest.raises(HermesError):
            await env.read(path)
    with pytest.raises(HermesError):
        await env.write(f"{up}etc/hermes-was-here", b"x")
    with pytest.raises(HermesError):
        await env.remove(f"{boxes.home}/.env")
    assert (boxes.home / ".env").exists()


async def test_links_that_stay_inside_work(boxes: Boxes) -> None:
    env = await boxes.open()
    await sh(env, "cd /workspace; mkdir d; echo text > d/f; ln -s /workspace/d/f a; ln -s d e")
    assert await env.read("/workspace/a") == b"text\n"
    assert await env.read("/workspace/e/../d/f") == b"text\n"
    await env.write("/workspace/e/f", b"new\n")
    assert await says(env, "cat /workspace/d/f") == "new"
    listed = {entry.name: entry.is_dir for entry in await env.list_dir("/workspace")}
    assert listed.keys() == {"a", "d", "e"}
    assert listed["d"]
    assert not listed["a"]


async def test_the_state_of_the_shell_cannot_be_used_to_read_outside(boxes: Boxes) -> None:
    env = await boxes.open()
    script = (
        "for d in /run/hermes /run/hermes/*/; do for i in $(seq 0 9); do"
        f" ln -sf {boxes.home}/.env $d/cwd.$i; ln -sf {boxes.home}/.env $d/env.$i; done; done;"
        " exec true"
    )
    for _ in range(3):
        assert SECRET not in str(await sh(env, script))
    assert SECRET not in env.cwd
    assert SECRET in (boxes.home / ".env").read_text()


@pytest.mark.parametrize("left", [r"/workspace/a\0b", "workspace", r"/tmp/\377", ""])
async def test_what_is_left_as_a_directory_and_is_none_changes_nothing(
    boxes: Boxes, left: str
) -> None:
    env = await boxes.open()
    await sh(env, "mkdir -p d; cd d; export KEPT=kept")
    forged = (
        "for d in /run/hermes /run/hermes/*/; do for i in $(seq 0 9); do"
        f" printf '{left}\\n' >$d/cwd.$i; echo : >$d/env.$i; done; done; exec true"
    )
    result = await sh(env, forged)
    assert result.cwd == env.cwd == "/workspace/d"
    assert msgspec.json.encode(result)
    assert await says(env, "pwd; echo fine") == "/workspace/d\nfine"
    await env.write("f", b"x")
    await env.close()
    assert await says(env, "pwd; cat f") == "/workspace/d\nx"


async def test_a_directory_whose_name_is_no_text_is_left_again(boxes: Boxes) -> None:
    env = await boxes.open()
    result = await sh(env, r"d=$'\xff\xfe'; mkdir $d; cd $d && pwd")
    assert result.exit_code == 0
    assert result.cwd == "/workspace"
    assert msgspec.json.encode(result)
    assert await says(env, "pwd") == "/workspace"


async def test_a_pipe_left_where_state_is_expected_holds_nobody_up(boxes: Boxes) -> None:
    env = await boxes.open()
    await sh(
        env,
        "for d in /run/hermes /run/hermes/*/; do rm -f $d/cwd.*;"
        " for i in 1 2 3 4 5 6; do mkfifo $d/cwd.$i; done; done; exec true",
    )
    assert await says(env, "exec echo fine") == "fine"


@pytest.mark.parametrize(
    "script",
    [
        "mount -t tmpfs none /tmp",
        "mount --bind /workspace /usr",
        "mount -o remount,rw /",
        "umount /proc",
        "unshare -Ur true",
        "unshare -m true",
        "chroot / true",
        "mknod /workspace/disk b 8 0",
        "mknod /workspace/memory c 1 1",
        "chown 12345 /workspace",
        "busybox hostname escaped",
        "busybox ip link add dummy0 type dummy",
    ],
)
async def test_what_needs_privilege_fails(boxes: Boxes, script: str) -> None:
    env = await boxes.open()
    result = await sh(env, script)
    assert result.exit_code not in {0, 127}, result.output


async def test_there_are_no_capabilities_and_none_can_be_gained(boxes: Boxes) -> None:
    env = await boxes.open()
    status = dict(
        line.split(":\t", 1)
        for line in (await says(env, "cat /proc/self/status")).splitlines()
        if ":\t" in line
    )
    for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert int(status[name], 16) == 0, name
    assert status["NoNewPrivs"] == "1"
    ids = "for f in $(find / -xdev -perm -4000 -type f 2>/dev/null); do echo $f; done"
    for program in (await says(env, ids)).split()[:3]:
        gained = await says(env, f"{program} grep CapEff /proc/self/status 2>/dev/null")
        assert gained in {"", "CapEff:\t0000000000000000"} or "CapEff" not in gained


async def test_processes_of_the_host_are_neither_seen_nor_touched(boxes: Boxes) -> None:
    env = await boxes.open()
    ours = os.getpid()
    seen = await says(env, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert "pytest" not in seen
    assert (await sh(env, f"kill -0 {ours}")).exit_code != 0 or ours < 100
    assert (await sh(env, f"cat /proc/{ours}/environ")).exit_code != 0 or ours < 100
    inside = await says(env, "ls -d /proc/[0-9]* | wc -l")
    assert int(inside) < 12


async def test_devices_of_the_host_are_not_there(boxes: Boxes) -> None:
    env = await boxes.open()
    names = set((await says(env, "ls /dev")).split())
    allowed = {"core", "fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm"}
    assert names <= allowed | {"stderr", "stdin", "stdout", "tty", "urandom", "zero", "console"}
    before = mode_of("/dev/null")
    await sh(env, "chmod 600 /dev/null; chmod 000 /dev/zero")
    assert mode_of("/dev/null") == before
    with pytest.raises(HermesError):
        await env.read("/dev/zero", limit=10)


async def test_nothing_of_the_host_is_reachable_through_open_files(boxes: Boxes) -> None:
    env = await boxes.open()
    host = ["/dev/null", *filter(None, map(shutil.which, ("bwrap", "nsenter", "sh", "docker")))]
    before = [mode_of(path) for path in host]
    await env.spawn(ShellRun(script="sleep 305"))
    await sh(env, "chmod 711 /proc/[0-9]*/exe /proc/[0-9]*/fd/* /dev/std* /dev/fd/*")
    await sh(env, "for f in /proc/[0-9]*/exe /proc/[0-9]*/fd/*; do : >>$f; done", timeout=5)
    assert [mode_of(path) for path in host] == before
    shown = await says(env, "ls -l /proc/[0-9]*/fd /proc/[0-9]*/exe /proc/[0-9]*/cwd 2>/dev/null")
    assert str(boxes.home.parent) not in shown


async def test_secrets_of_hermes_are_not_in_the_environment(boxes: Boxes) -> None:
    env = await boxes.open()
    for _ in range(2):
        assert SECRET not in await says(env, "env; cat /proc/*/environ 2>/dev/null | tr '\\0' ' '")


async def test_the_host_is_not_named_in_what_commands_can_see_of_processes(boxes: Boxes) -> None:
    env = await boxes.open()
    assert str(boxes.home) not in await says(env, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
