"""What every isolating backend does the same way as `local`."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from fakes.boxes import Boxes, says, sh
from fakes.toolbox import SCRIPT, SCRIPT_SAYS, Toolbox
from hermes.domain.errors import Conflict, HermesError, NotFound, UsageError
from hermes.domain.ports.execution import NOTHING, ShellRun, digest

pytestmark = pytest.mark.parametrize(
    "boxes",
    ["sandbox", pytest.param("docker", marks=pytest.mark.xdist_group("docker"))],
    indirect=True,
)


@pytest.fixture(autouse=True)
async def bounded() -> AsyncIterator[None]:
    async with asyncio.timeout(55):
        yield


async def test_directory_variables_and_functions_carry_over(boxes: Boxes) -> None:
    env = await boxes.open()
    first = await sh(env, "pwd; mkdir 'sub dir'; cd 'sub dir'; export A='a b'; f() { echo f$1; }")
    assert first.output == "/workspace\n"
    after = await sh(env, 'echo "$PWD|$A|$(f 1)"; unset HOME')
    assert after.output == "/workspace/sub dir|a b|f1\n"
    assert after.cwd == env.cwd == "/workspace/sub dir"
    assert await says(env, "echo ${HOME-gone}") == "gone"


async def test_a_given_directory_and_variables_are_for_one_command(boxes: Boxes) -> None:
    env = await boxes.open()
    once = await env.run(ShellRun(script="echo $A $PWD", cwd="/tmp", env={"A": "x; $y"}))
    assert (once.output, once.cwd) == ("x; $y /tmp\n", "/workspace")
    assert await says(env, "echo ${A-none}") == "none"


async def test_exit_codes_come_back(boxes: Boxes) -> None:
    env = await boxes.open()
    for script, code in (("exit 7", 7), ("kill -9 $$", 137), ("if then", 2), ("exec false", 1)):
        assert (await sh(env, script)).exit_code == code
    assert await says(env, "echo on") == "on"


async def test_standard_input_and_long_scripts_get_through(boxes: Boxes) -> None:
    env = await boxes.open()
    given = await env.run(ShellRun(script="wc -c", stdin=b"x" * 300_000))
    assert given.output.strip() == "300000"
    assert (await sh(env, "cat")).output == ""
    assert await says(env, "readlink /proc/self/fd/0") == "/dev/null"
    assert await says(env, f"x='{'y' * 200_000}'; echo ${{#x}}") == "200000"


async def test_a_terminal_is_given_on_request(boxes: Boxes) -> None:
    env = await boxes.open()
    script = "test -t 0 && test -t 1 && echo both; echo direct >/dev/tty; cd /"
    result = await env.run(ShellRun(script=script, pty=True))
    assert (result.output, result.cwd) == ("both\ndirect\n", "/")


async def test_output_is_passed_on_while_the_command_runs(boxes: Boxes) -> None:
    env = await boxes.open()
    seen = asyncio.Event()
    script = "echo first; until [ -e go ]; do sleep 0.02; done; echo second"
    task = asyncio.ensure_future(env.run(ShellRun(script=script), lambda _: seen.set()))
    await seen.wait()
    await env.write("/workspace/go", b"")
    assert (await task).output == "first\nsecond\n"


async def test_a_background_process_is_fed_read_and_ended(boxes: Boxes) -> None:
    env = await boxes.open()
    await sh(env, "export A=carried")
    talker = await env.spawn(ShellRun(script="echo $A; read x; echo got $x; exit 4"))
    await env.write_stdin(talker.id, "text\n")
    ended = await env.wait(talker.id, 20)
    assert (ended.running, ended.exit_code) == (False, 4)
    assert (await env.process_output(talker.id))[0] == "carried\ngot text\n"
    sleeper = await env.spawn(ShellRun(script="sleep 301 & sleep 301"))
    assert not (await env.kill(sleeper.id)).running
    assert await says(env, "ps -o args | grep -c '[s]leep 301'") == "0"


async def test_files_are_read_written_listed_and_removed(boxes: Boxes) -> None:
    env = await boxes.open()
    await env.write("new/deep/file.bin", b"\x00\xff bytes\x1b[1m")
    assert await env.read("new/deep/file.bin") == b"\x00\xff bytes\x1b[1m"
    assert await env.read("new/deep/file.bin", offset=2, limit=3) == b" by"
    assert await says(env, "wc -c < new/deep/file.bin; chmod 750 new/deep/file.bin") == "12"
    await env.write("new/deep/file.bin", b"")
    assert await says(env, "stat -c '%a %s' new/deep/file.bin") == "750 0"
    described = await env.stat("new/deep")
    assert described is not None
    assert (described.is_dir, described.is_file) == (True, False)
    await env.write("new/a\nb", b"12345", NOTHING)
    with pytest.raises(Conflict, match="changed meanwhile"):
        await env.write("new/a\nb", b"lost", digest(b"1234"))
    assert [(e.name, e.is_dir) for e in await env.list_dir("new")] == [
        ("a\nb", False),
        ("deep", True),
    ]
    await env.remove("new/a\nb")
    assert await env.stat("new/a\nb") is None
    assert await env.list_dir("/workspace/new") != []


async def test_file_errors_are_sentences(boxes: Boxes) -> None:
    env = await boxes.open()
    await sh(env, "mkdir d; mkfifo p; ln -s nowhere broken; ln -s loop loop")
    for path, kind in (
        ("missing", NotFound),
        ("missing/below", NotFound),
        ("d", UsageError),
        ("p", UsageError),
        ("broken", NotFound),
        ("loop", HermesError),
        ("nul\0byte", UsageError),
    ):
        with pytest.raises(kind):
            await env.read(path)
    with pytest.raises(UsageError):
        await env.write("d", b"x")
    with pytest.raises(UsageError):
        await env.remove("d")
    with pytest.raises(NotFound):
        await env.list_dir("missing")


async def test_paths_mean_what_they_mean_inside(boxes: Boxes) -> None:
    env = await boxes.open()
    assert env.resolve("a/../b") == "/workspace/b"
    home = await says(env, "echo ~")
    assert env.resolve("~/x") == f"{home}/x"
    await env.write("~/x", b"home")
    assert await says(env, "cat ~/x") == "home"


async def test_what_a_session_keeps_outlives_its_environment(boxes: Boxes) -> None:
    env = await boxes.open()
    await sh(env, "mkdir sub; cd sub; echo kept > f; mkdir -p /tmp/hermes-results/s; echo r > $_/c")
    await env.close()
    assert await says(env, "cat f; pwd") == "kept\n/workspace/sub"
    assert await says(env, "cat /tmp/hermes-results/s/c") == "r"
    assert (boxes.directory() / "workspace/sub/f").read_text() == "kept\n"


async def test_session_ids_from_outside_cannot_name_other_places(boxes: Boxes) -> None:
    env = await boxes.open("../../../escape", "agent/../x")
    assert await says(env, "echo in > f; cat f") == "in"
    assert not (boxes.home.parent / "escape").exists()
    twin = await boxes.open("______escape", "agent/../x")
    assert await says(twin, "cat f 2>/dev/null") == ""


async def test_a_received_file_has_a_place_inside_that_no_other_one_has(boxes: Boxes) -> None:
    env = await boxes.open()
    first = env.received("/cache/telegram/1_0_a.txt", "../my [a] file.txt")
    second = env.received("/cache/telegram/2_0_a.txt", "../my [a] file.txt")
    assert first != second
    for path in (first, second):
        assert path.startswith("/workspace/inbox/my_a_file-")
        assert path.endswith(".txt")
        await env.write(path, b"of Ann")
        assert await says(env, f"cat {path}") == "of Ann"
    assert env.received("/cache/x", "\n..") == env.received("/cache/x", "\n..")


async def test_a_script_calls_tools_from_there(boxes: Boxes) -> None:
    text = await Toolbox(await boxes.open()).text("execute_code", code=SCRIPT)
    if boxes.backend == "docker":  # the image of the tests is small
        assert text == "There is no python3 where your commands run."
    else:
        assert text.splitlines()[:2] == SCRIPT_SAYS
