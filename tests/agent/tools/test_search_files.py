import asyncio
import shutil
import stat
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fakes.toolbox import PATH, Toolbox
from hermes.domain.messages import ToolOutcome
from hermes.execution.backends.local import LocalEnvironment
from hermes.execution.clock import SystemClock

ENGINES = [
    "grep",
    "posix",
    pytest.param("rg", marks=pytest.mark.skipif(not shutil.which("rg"), reason="no ripgrep")),
]


def limited_path(directory: Path, engine: str) -> str:
    """Return a PATH on which `search_files` finds only this engine."""
    if engine == "rg":
        return f"{Path(str(shutil.which('rg'))).parent}:{PATH}"
    directory.mkdir()
    for name in ("bash", "find", "head", "sh", "tr", "grep"):
        (directory / name).symlink_to(str(shutil.which(name)))
    if engine == "posix":
        # A grep that knows none of the GNU extensions, as on small images.
        (directory / "grep").unlink()
        script = directory / "grep"
        script.write_text(
            '#!/bin/bash\nfor a; do case "$a" in --[a-z]*|-*Z*|-qP) exit 2;; esac; done\n'
            f'exec {shutil.which("grep")} "$@"\n'
        )
        script.chmod(stat.S_IRWXU)
    return str(directory)


@pytest.fixture(params=ENGINES)
async def tools(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Toolbox]:
    root = tmp_path / "root"
    root.mkdir()
    path = limited_path(tmp_path / "bin", request.param)
    env = LocalEnvironment(cwd=str(root), env={"PATH": path}, clock=SystemClock())
    yield Toolbox(env)
    await env.close()


def put(tools: Toolbox, **files: str) -> None:
    for name, text in files.items():
        path = Path(tools.environment.cwd) / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


async def test_matching_lines_come_with_their_numbers(tools: Toolbox) -> None:
    put(tools, a_py="import os\nx = 1\nimport re\n", sub__b_txt="nothing\nimport sys\n")
    text = await tools.text("search_files", pattern="^import [os]")
    assert "a.py\n1:import os" in text
    assert "sub/b.txt\n2:import sys" in text
    assert len(text.split("\n")) == 4


async def test_files_are_found_by_name(tools: Toolbox) -> None:
    put(tools, a_py="", sub__deep__b_py="", sub__c_txt="")
    assert await tools.text("search_files", pattern="*.py", target="files") == "a.py\nsub/deep/b.py"
    assert (
        await tools.text("search_files", pattern="sub/**/*.py", target="files") == "sub/deep/b.py"
    )
    assert await tools.text("search_files", pattern="**/c.txt", target="files") == "sub/c.txt"


async def test_dependencies_and_history_are_left_out(tools: Toolbox) -> None:
    for name in (".git", "node_modules", "__pycache__"):
        directory = Path(tools.environment.cwd) / name
        directory.mkdir()
        (directory / "x.py").write_text("needle")
    assert await tools.text("search_files", pattern="*.py", target="files") == "Nothing found."


async def test_other_forms_of_output(tools: Toolbox) -> None:
    put(tools, a="x\nx\n", b="y\n", c="x\n")
    names = await tools.text("search_files", pattern="x", output_mode="files_only")
    assert sorted(names.split("\n")) == ["a", "c"]
    counts = await tools.text("search_files", pattern="x", output_mode="count")
    assert sorted(counts.split("\n")) == ["a: 2", "c: 1"]


async def test_context_lines_are_marked(tools: Toolbox) -> None:
    put(tools, a="1\n2\nhit\n4\n5\n")
    text = await tools.text("search_files", pattern="hit", context=1, path="a")
    assert text in ("a\n2-2\n3:hit\n4-4", "a\n3:hit"), "a plain grep tells no context apart"


async def test_results_are_paged_without_gap_or_repeat(tools: Toolbox) -> None:
    put(tools, a="".join(f"hit {n}\n" for n in range(1, 8)))
    seen: list[str] = []
    offset = 0
    while True:
        text = await tools.text("search_files", pattern="hit", limit=3, offset=offset)
        seen += [line for line in text.split("\n") if ":hit" in line]
        if "More follow" not in text:
            break
        offset += 3
        assert f"offset={offset}" in text
    assert seen == [f"{n}:hit {n}" for n in range(1, 8)]
    assert "Nothing found" in await tools.text("search_files", pattern="hit", offset=99)


async def test_nothing_found_is_not_an_error_but_a_broken_pattern_is(tools: Toolbox) -> None:
    put(tools, a="x")
    assert await tools.text("search_files", pattern="zzz") == "Nothing found."
    broken = await tools.do("search_files", pattern="(")
    assert broken.outcome is ToolOutcome.ERROR
    assert "search failed" in str(broken.content)
    ahead = await tools.text("search_files", pattern="(?=a)b")
    assert "pcre2" not in ahead, "options of another program"
    missing = await tools.do("search_files", pattern="x", path="no/such")
    assert missing.outcome is ToolOutcome.ERROR
    assert (await tools.do("search_files", pattern="")).outcome is ToolOutcome.ERROR


async def test_a_glob_limits_the_files(tools: Toolbox) -> None:
    put(tools, a_py="needle\n", b_txt="needle\n")
    text = await tools.text("search_files", pattern="needle", file_glob="*.py")
    assert text == "a.py\n1:needle"


async def test_searching_does_not_move_the_session(tools: Toolbox) -> None:
    before = tools.environment.cwd
    await tools.do("search_files", pattern="x", path="/tmp", target="files")
    assert tools.environment.cwd == before


async def test_long_lines_are_shortened(tools: Toolbox) -> None:
    put(tools, a="needle" + "x" * 10_000)
    assert len(await tools.text("search_files", pattern="needle")) < 600


NAMES = [
    "with space",
    "-rf",
    "--include=x",
    "new\nline",
    "$(touch pwned)",
    "`touch pwned`",
    "'q'",
    '"dq"',
    "a;touch pwned",
    "*",
    "[x]",
    "back\\slash",
    "ünï",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("engine", [ENGINES[0], ENGINES[2]])
async def test_hostile_file_names_are_found_and_do_nothing(
    tmp_path: Path, name: str, engine: str
) -> None:
    path = limited_path(tmp_path / "bin", engine)
    root = tmp_path / "root"
    (root / name).mkdir(parents=True)
    (root / name / "file.txt").write_text("needle\n")
    (root / f"{name}.txt").write_text("needle\n")
    env = LocalEnvironment(cwd=str(root), env={"PATH": path}, clock=SystemClock())
    tools = Toolbox(env)
    everywhere = await tools.text("search_files", pattern="needle")
    assert everywhere.count("1:needle") == 2
    assert f"{name}/file.txt\n1:needle" in everywhere
    below = await tools.text("search_files", pattern="needle", path=name)
    assert below == f"{name}/file.txt\n1:needle"
    files = await tools.text("search_files", pattern="*.txt", target="files", path=name)
    assert files == f"{name}/file.txt"
    assert sorted(p.name for p in root.iterdir()) == sorted([name, f"{name}.txt"])
    await env.close()


async def test_a_line_that_is_cut_off_costs_what_many_lines_do(tmp_path: Path) -> None:
    env = LocalEnvironment(cwd=str(tmp_path), env={"PATH": PATH}, clock=SystemClock())
    tools = Toolbox(env)

    spent = {}
    for kind, text in (("lines", "a\n" * 200_000), ("line", "a" * 4_000_000)):
        (tmp_path / "file.txt").write_text(text)
        began = time.process_time()
        assert "file.txt" in await tools.text("search_files", pattern="a+")
        spent[kind] = time.process_time() - began
    assert spent["line"] < 10 * max(spent["lines"], 0.05)
    await env.close()


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(pattern=st.text("ab$`'\"\\;|&()<>{}*?[]!#~ \n\t-^.=%", min_size=1, max_size=12))
def test_no_pattern_reaches_the_shell(tmp_path: Path, pattern: str) -> None:
    root = tmp_path / "hostile"
    root.mkdir(exist_ok=True)
    (root / "file.txt").write_text("a\n")

    async def search() -> None:
        env = LocalEnvironment(cwd=str(root), env={"PATH": PATH}, clock=SystemClock())
        tools = Toolbox(env)
        for arguments in (
            {"pattern": pattern},
            {"pattern": pattern, "target": "files"},
            {"pattern": "a", "file_glob": pattern},
            {"pattern": "a", "path": pattern},
        ):
            result = await tools.do("search_files", **arguments)
            assert "command not found" not in str(result.content)
            assert "syntax error" not in str(result.content)
        await env.close()

    asyncio.run(search())
    assert [p.name for p in root.iterdir()] == ["file.txt"]
    assert (root / "file.txt").read_text() == "a\n"
