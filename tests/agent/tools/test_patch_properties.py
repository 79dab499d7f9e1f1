import difflib

from hypothesis import assume, given
from hypothesis import strategies as st

from hermes.agent.tools.fuzzy import find
from hermes.agent.tools.patch import added_text, apply_hunks, parse_patch
from hermes.agent.tools.text_file import TextFile, count_changes, unified_diff
from hermes.domain.errors import UsageError

LINE = st.text("ab \t{}=()", max_size=8)
UNIQUE = st.lists(st.integers(0, 10_000), unique=True, max_size=40)


def as_patch(path: str, old: list[str], new: list[str], context: int) -> str:
    body = [
        line if not line.startswith("@@") else "@@"
        for line in list(difflib.unified_diff(old, new, lineterm="", n=context))[2:]
    ]
    return "\n".join(["*** Begin Patch", f"*** Update File: {path}", *body, "*** End Patch"])


@given(UNIQUE, st.data(), st.integers(1, 4))
def test_applying_the_difference_of_two_texts_gives_the_second(
    numbers: list[int], data: st.DataObject, context: int
) -> None:
    old = [f"line {number} text" for number in numbers]
    new = list(old)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(new)))
        gone = data.draw(st.integers(0, 3))
        new[at : at + gone] = data.draw(
            st.lists(st.integers(0, 99).map(lambda n: f"new {n}"), max_size=3)
        )
    assume(old and old != new)
    (change,) = parse_patch(as_patch("f", old, new, context))
    text = "".join(f"{line}\n" for line in old)
    assert apply_hunks("f", text, change.hunks) == "".join(f"{line}\n" for line in new)


@given(st.lists(LINE, max_size=20), st.lists(LINE, max_size=20))
def test_a_patch_of_any_texts_gives_the_second_or_says_why_not(
    old: list[str], new: list[str]
) -> None:
    assume(old != new)
    # In a file of blank lines there is nothing to tell a place by.
    assume(not old or any(line.strip() for line in old))
    text = "".join(f"{line}\n" for line in old)
    try:
        (change,) = parse_patch(as_patch("f", old, new, context=50))
        result = apply_hunks("f", text, change.hunks)
    except UsageError:
        return
    wanted = "".join(f"{line}\n" for line in new)
    # Trailing empty kept lines of a hunk count as layout; nothing else may differ.
    assert result.rstrip("\n") == wanted.rstrip("\n")


@given(st.lists(LINE, max_size=30))
def test_an_added_file_has_exactly_its_lines(lines: list[str]) -> None:
    text = "*** Add File: f\n" + "\n".join(f"+{line}" for line in lines)
    (change,) = parse_patch(text)
    assert added_text(change) == "".join(f"{line}\n" for line in lines)


@given(st.text(max_size=300))
def test_any_text_is_a_patch_or_a_usage_error(text: str) -> None:
    try:
        changes = parse_patch(text)
    except UsageError:
        return
    assert all(change.path for change in changes)


@given(st.lists(LINE, min_size=1, max_size=25), st.data())
def test_fuzzy_finds_every_place_that_is_as_good(lines: list[str], data: st.DataObject) -> None:
    """What `find` calls unique is unique under its own strategy: no choice between equals."""
    text = "\n".join(lines)
    first = data.draw(st.integers(0, len(lines) - 1))
    count = data.draw(st.integers(1, 4))
    wanted_lines = lines[first : first + count]
    shift = data.draw(st.sampled_from(["", "  ", "\t"]))
    wanted = "\n".join(
        shift + line + data.draw(st.sampled_from(["", " "])) for line in wanted_lines
    )
    found = find(text, wanted)
    if found is None:
        assert not wanted.strip()
        return
    if found.strategy == "exact":
        assert all(text[start:end] == wanted for start, end in found.spans)
        return
    squeezed = " ".join(wanted.split())
    for start, end in found.spans:
        assert " ".join(text[start:end].split()) == squeezed
        assert start == 0 or text[start - 1] == "\n"
        # What is wanted may end with a line break, which is then part of the place.
        assert end == len(text) or "\n" in {text[end], text[end - 1]}
    starts = {start for start, _ in found.spans}
    offset = sum(len(line) + 1 for line in lines[:first])
    assert offset in starts, "the place that was meant is among the candidates"


@given(st.binary(max_size=200))
def test_a_text_file_that_is_not_changed_is_written_back_byte_for_byte(data: bytes) -> None:
    file = TextFile.from_bytes(data)
    assert file.encode(file.text) == data


@given(st.lists(LINE, max_size=40), st.lists(LINE, max_size=40))
def test_a_diff_has_hunks_that_rebuild_the_new_text(old: list[str], new: list[str]) -> None:
    diff = unified_diff("f", "\n".join(old), "\n".join(new))
    before, after = "\n".join(old).splitlines(), "\n".join(new).splitlines()
    if before == after:
        assert diff == ""
        return
    added, removed = count_changes(diff)
    assert len(after) - len(before) == added - removed
    rebuilt, position = [], 0
    for line in diff.split("\n")[2:]:
        if line.startswith("@@"):
            start = int(line.split()[1].split(",")[0][1:])
            length = line.split()[1].partition(",")[2]
            begin = start if length == "0" else start - 1
            rebuilt += before[position:begin]
            position = begin
        elif line[:1] == "+":
            rebuilt.append(line[1:])
        else:
            assert before[position] == line[1:]
            position += 1
            if line[:1] == " ":
                rebuilt.append(line[1:])
    assert rebuilt + before[position:] == after
