import asyncio
from pathlib import Path

import pytest

from fakes.toolbox import Toolbox, local_environment
from hermes.agent.tools import fuzzy
from hermes.agent.tools.patch import TOOL
from hermes.domain.messages import ToolOutcome, content_text
from hermes.testing.environment import FakeEnvironment

CODE = """def first():
    value = 1
    return value


def second():
    value = 1
    return value
"""


def box(**files: bytes | str) -> Toolbox:
    return Toolbox(FakeEnvironment(files=dict(files)))


def content(tools: Toolbox, path: str) -> str:
    assert isinstance(tools.environment, FakeEnvironment)
    return tools.environment.files[tools.environment.resolve(path)].decode()


async def test_exact_text_is_replaced_and_the_diff_shown() -> None:
    tools = box(a="one\ntwo\nthree\n")
    result = await tools.do("patch", mode="replace", path="a", old_string="two", new_string="2")
    assert content(tools, "a") == "one\n2\nthree\n"
    assert result.content == "Changed /work/a (+1 -1)."
    assert result.diff == "--- a/work/a\n+++ b/work/a\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three"


async def test_an_ambiguous_quote_changes_nothing_and_shows_the_places() -> None:
    tools = box(a=CODE)
    result = await tools.do("patch", path="a", old_string="value = 1", new_string="value = 2")
    assert result.outcome is ToolOutcome.ERROR
    assert "line 2: value = 1" in str(result.content)
    assert "line 7: value = 1" in str(result.content)
    assert content(tools, "a") == CODE
    await tools.do(
        "patch", path="a", old_string="value = 1", new_string="value = 2", replace_all=True
    )
    assert content(tools, "a") == CODE.replace("= 1", "= 2")


async def test_occurrences_that_overlap_are_ambiguous() -> None:
    result = await box(a="aXaXa").do("patch", path="a", old_string="aXa", new_string="b")
    assert result.outcome is ToolOutcome.ERROR


@pytest.mark.parametrize(
    ("old", "new", "expected", "strategy"),
    [
        (
            "def first():   \n    value = 1\n",
            "def first():\n    value = 3\n",
            CODE.replace("1", "3", 1),
            "trailing_space",
        ),
        (
            "def first():\n  value = 1",
            "def first():\n    value = 3",
            CODE.replace("1", "3", 1),
            "indentation",
        ),
        ("def  first( ):", "x", None, ""),
        ("def   second():", "def third():", CODE.replace("second", "third"), "whitespace"),
        (
            "def first():\\n    value = 1\\n",
            "def first():\n    value = 3\n",
            CODE.replace("1", "3", 1),
            "escapes",
        ),
        (
            "def first():\n    valeu = 1\n    return value\n",
            "def first():\n    return 3\n",
            CODE.replace("    value = 1\n    return value", "    return 3", 1),
            "block_anchor",
        ),
    ],
)
async def test_a_quote_that_is_nearly_right_is_found_and_said_so(
    old: str, new: str, expected: str | None, strategy: str
) -> None:
    tools = box(a=CODE)
    result = await tools.do("patch", path="a", old_string=old, new_string=new)
    if expected is None:
        assert result.outcome is ToolOutcome.ERROR
        assert content(tools, "a") == CODE
        return
    assert content(tools, "a") == expected
    assert f"({strategy})" in str(result.content)
    assert result.diff is not None
    assert result.diff in str(result.content)


async def test_typographic_characters_do_not_hide_a_match() -> None:
    tools = box(a="say(“hello – world”)\nnext\n")
    result = await tools.do(
        "patch", path="a", old_string='say("hello - world")', new_string="say()"
    )
    assert content(tools, "a") == "say()\nnext\n", result.content


async def test_added_text_is_indented_like_the_place_it_goes_to() -> None:
    tools = box(a="class A:\n    def f(self):\n        return 1\n")
    await tools.do(
        "patch",
        path="a",
        old_string="def f(self):\n    return 1",
        new_string="def f(self):\n    x = 2\n    return x",
    )
    assert content(tools, "a") == "class A:\n    def f(self):\n        x = 2\n        return x\n"


async def test_a_text_that_is_not_there_names_the_nearest_line() -> None:
    result = await box(a=CODE).do("patch", path="a", old_string="def secund(x):", new_string="y")
    assert "nearest line is 6: `def second():`" in str(result.content)


@pytest.mark.parametrize(
    "arguments",
    [
        {"path": "a", "old_string": "", "new_string": "x"},
        {"path": "a", "old_string": "one", "new_string": "one"},
        {"path": "missing", "old_string": "one", "new_string": "x"},
        {"old_string": "one", "new_string": "x"},
        {"mode": "patch", "patch": ""},
        {"mode": "other"},
    ],
)
async def test_calls_that_make_no_sense_are_errors(arguments: dict[str, str]) -> None:
    tools = box(a="one\n")
    assert (await tools.do("patch", **arguments)).outcome is ToolOutcome.ERROR
    assert content(tools, "a") == "one\n"


async def test_line_endings_and_byte_order_mark_are_kept() -> None:
    tools = box(a=b"\xef\xbb\xbfone\r\ntwo\r\nthree\r\n", latin="caf\xe9\nx\n".encode("latin-1"))
    await tools.do("patch", path="a", old_string="one\ntwo", new_string="1\n2\n2b")
    assert isinstance(tools.environment, FakeEnvironment)
    assert tools.environment.files["/work/a"] == b"\xef\xbb\xbf1\r\n2\r\n2b\r\nthree\r\n"
    await tools.do("patch", path="latin", old_string="x", new_string="y")
    assert tools.environment.files["/work/latin"] == "caf\xe9\ny\n".encode("latin-1")


PATCH = """*** Begin Patch
*** Update File: a.py
@@ def second():
-    value = 1
+    value = 2
     return value
*** Add File: sub/new.txt
+hello
+
+world
*** Delete File: old.txt
*** Update File: moved.txt
*** Move to: there/moved.txt
@@
-x
+y
*** End Patch
"""


async def test_a_patch_changes_several_files() -> None:
    files: dict[str, bytes | str] = {
        "a.py": CODE,
        "old.txt": "old",
        "moved.txt": b"x\r\nz\r\n",
    }
    tools = box(**files)
    result = await tools.do("patch", mode="patch", patch=PATCH)
    assert isinstance(tools.environment, FakeEnvironment)
    assert tools.environment.files == {
        "/work/a.py": (CODE[:58] + CODE[58:].replace("= 1", "= 2")).encode(),
        "/work/sub/new.txt": b"hello\n\nworld\n",
        "/work/there/moved.txt": b"y\r\nz\r\n",
    }, result.content
    assert "Deleted /work/old.txt." in str(result.content)


@pytest.mark.parametrize(
    "broken",
    [
        "*** Update File: a.py\n@@\n-    value = 1\n+    value = 2",  # two places
        "*** Update File: a.py\n@@ return value\n+    # which one?\n     return value",
        "*** Update File: a.py\n@@ def nowhere():\n-    value = 1\n+    value = 2",
        "*** Update File: a.py\n-    value = 99\n+    value = 2",
        "*** Update File: a.py",
        "*** Update File: missing.py\n-x\n+y",
        "*** Add File: a.py\n+x",
        "*** Delete File: missing.py",
        "*** Add File: z\nno plus",
        "*** Frobnicate File: a.py",
    ],
)
async def test_one_change_without_a_clear_place_stops_them_all(broken: str) -> None:
    tools = box(**{"a.py": CODE, "b.txt": "b\n"})
    text = f"*** Begin Patch\n*** Update File: b.txt\n-b\n+B\n{broken}\n*** End Patch"
    result = await tools.do("patch", mode="patch", patch=text)
    assert result.outcome is ToolOutcome.ERROR
    assert isinstance(tools.environment, FakeEnvironment)
    assert tools.environment.files == {"/work/a.py": CODE.encode(), "/work/b.txt": b"b\n"}


async def test_a_write_that_fails_half_way_is_put_back(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    (tmp_path / "file").write_text("not a directory\n")
    text = (
        "*** Update File: a.txt\n-a\n+A\n*** Add File: fresh.txt\n+x\n"
        "*** Add File: file/below.txt\n+y\n"
    )
    async with local_environment(tmp_path) as env:
        result = await Toolbox(env).do("patch", mode="patch", patch=text)
        assert [entry.name for entry in await env.list_dir(".")] == ["a.txt", "file"]
    assert result.outcome is ToolOutcome.ERROR
    assert (tmp_path / "a.txt").read_text() == "a\n"


async def test_anchors_narrow_the_place_down() -> None:
    text = (
        "class A:\n    def f(self):\n        pass\n\n\nclass B:\n    def f(self):\n        pass\n"
    )
    tools = box(a=text)
    result = await tools.do(
        "patch",
        mode="patch",
        patch="*** Update File: a\n@@ class B:\n@@     def f(self):\n"
        "-        pass\n+        return 2\n",
    )
    assert content(tools, "a") == text[:58] + text[58:].replace("pass", "return 2"), result.content


async def test_hunks_may_come_in_another_order_than_the_lines() -> None:
    tools = box(a="one\ntwo\nthree\n")
    text = "*** Update File: a\n@@\n-three\n+3\n@@\n-one\n+1\n"
    await tools.do("patch", mode="patch", patch=text)
    assert content(tools, "a") == "1\ntwo\n3\n"


async def test_text_that_was_escaped_twice_is_put_right_on_both_sides() -> None:
    tools = box(a="one\n\ttwo\n")
    await tools.do("patch", path="a", old_string="one\\n\\ttwo", new_string="1\\n\\t2")
    assert content(tools, "a") == "1\n\t2\n"


async def test_an_insertion_goes_after_its_anchor_or_to_the_end() -> None:
    tools = box(a="one\ntwo\n")
    await tools.do("patch", mode="patch", patch="*** Update File: a\n@@ one\n+one and a half\n")
    await tools.do("patch", mode="patch", patch="*** Update File: a\n@@\n+three\n*** End of File\n")
    assert content(tools, "a") == "one\none and a half\ntwo\nthree\n"


async def test_an_edit_that_breaks_the_syntax_is_remarked() -> None:
    tools = box(**{"a.py": "x = 1\n"})
    assert "does not parse: line 1" in await tools.text(
        "patch", path="a.py", old_string="1", new_string="("
    )


@pytest.mark.parametrize(
    ("arguments", "writes"),
    [
        ({"path": "a", "old_string": "x"}, ("a",)),
        (
            {"mode": "patch", "path": "decoy", "patch": PATCH},
            ("a.py", "sub/new.txt", "old.txt", "moved.txt", "there/moved.txt"),
        ),
        ({"mode": "patch", "patch": "garbage"}, ()),
    ],
)
def test_policy_is_told_which_files_a_call_would_change(
    arguments: dict[str, str], writes: tuple[str, ...]
) -> None:
    intent = TOOL.spec.intent
    assert intent is not None
    assert intent(arguments).writes == writes


async def test_results_read_as_text() -> None:
    result = await box(a="x\n").do("patch", path="a", old_string="x", new_string="y")
    assert content_text(result.content).startswith("Changed")


async def test_a_replacement_does_not_make_a_file_of_any_size() -> None:
    tools = box(a="x\n" * 20_000)
    result = await tools.do(
        "patch", path="a", old_string="x", new_string="x" * 3_000, replace_all=True
    )
    assert "too large" in content_text(result.content)
    assert content(tools, "a") == "x\n" * 20_000


async def test_a_search_comes_to_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzzy, "MAX_SECONDS", 0.02)
    tools = box(a="x = 1\n" * 50_000)
    hunks = "*** Begin Patch\n*** Update File: a\n@@\n" + "-x  = 1\n" * 2_000 + "-y\n*** End Patch"
    for arguments in (
        {"path": "a", "old_string": " x  =  1\n" * 2_000 + "y", "new_string": "b"},
        {"mode": "patch", "patch": hunks},
    ):
        assert "too long to find" in await tools.text("patch", **arguments)


async def test_changes_of_one_file_by_several_calls_at_once_are_all_made(tmp_path: Path) -> None:
    """Also by agents that know nothing of each other, and under another name."""
    (tmp_path / "a.txt").write_text("".join(f"line {number} old\n" for number in range(40)))
    (tmp_path / "link.txt").symlink_to("a.txt")
    async with local_environment(tmp_path) as one, local_environment(tmp_path) as two:
        boxes = [Toolbox(one), Toolbox(two)]

        async def change(number: int) -> ToolOutcome:
            name = "link.txt" if number % 3 else "a.txt"
            old, new = f"line {number} old", f"line {number} new"
            done = await boxes[number % 2].do("patch", path=name, old_string=old, new_string=new)
            return done.outcome

        outcomes = await asyncio.gather(*(change(number) for number in range(40)))
    assert set(outcomes) == {ToolOutcome.OK}
    assert (tmp_path / "a.txt").read_text().count("new") == 40


async def test_what_is_left_out_deletes_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("keep me")
    async with local_environment(tmp_path) as environment:
        box = Toolbox(environment)
        assert "needs path" in await box.text("patch", path="a.txt", old_string="keep me")
        assert (tmp_path / "a.txt").read_text() == "keep me"
        await box.text("patch", path="a.txt", old_string="keep ", new_string="")
        assert (tmp_path / "a.txt").read_text() == "me"


async def test_what_another_process_changes_meanwhile_is_kept(tmp_path: Path) -> None:
    """A patch that was worked out from an older text is worked out again."""

    class Meddled(FakeEnvironment):
        meddled = False

        async def write(self, path: str, data: bytes, was: str = "") -> None:
            if not self.meddled:
                self.meddled = True
                self.files[self.resolve("a")] += b"theirs\n"
            await super().write(path, data, was)

    for arguments in (
        {"path": "a", "old_string": "one", "new_string": "1"},
        {"mode": "patch", "patch": "*** Update File: a\n-one\n+1\n*** Add File: b\n+new"},
    ):
        tools = Toolbox(Meddled(files={"a": "one\ntwo\n"}))
        assert "Changed /work/a" in await tools.text("patch", **arguments)
        assert content(tools, "a") == "1\ntwo\ntheirs\n"
