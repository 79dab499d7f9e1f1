"""References are put into the message, bounded, and never with secrets."""

import asyncio
import os
import socket
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hermes.domain.errors import HermesError, NotFound
from hermes.domain.inbound import Attachment
from hermes.entry.terminal.references import ReferenceReader, find_references, is_secret
from hermes.entry.terminal.tty import clipboard_image, edit, image_file

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


@pytest.fixture
def reader(tmp_path: Path) -> ReferenceReader:
    return ReferenceReader(cwd=tmp_path, environ=dict(os.environ))


async def test_a_file_is_put_below_the_message(reader: ReferenceReader, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n", "utf-8")

    expanded = await reader.expand("explain @file:a.py.")

    assert expanded.added == ("\nReferenced above:\n\n@file:a.py\n```\nx = 1\n```")
    assert expanded.problems == ()


@pytest.mark.parametrize("kind", ["pipe", "socket", "device", "folder"])
async def test_what_is_no_regular_file_is_refused_and_not_waited_for(
    reader: ReferenceReader, tmp_path: Path, kind: str
) -> None:
    place = tmp_path / kind
    match kind:
        case "pipe":
            os.mkfifo(place)
        case "socket":
            with socket.socket(socket.AF_UNIX) as bound:
                bound.bind(str(place))
        case "device":
            place.symlink_to("/dev/zero")
        case "folder":
            place.mkdir()
    async with asyncio.timeout(10):
        expanded = await reader.expand(f"@file:{kind} x")
        with pytest.raises(HermesError):
            await image_file(kind, tmp_path)
    assert expanded.added == ""
    assert expanded.problems


async def test_some_lines_of_a_file(reader: ReferenceReader, tmp_path: Path) -> None:
    (tmp_path / "n.txt").write_text("\n".join("abcdef"), "utf-8")

    expanded = await reader.expand("@file:n.txt:2-3")

    assert "```\nb\nc\n```" in expanded.added


async def test_a_file_with_fences_cannot_break_out_of_its_own(
    reader: ReferenceReader, tmp_path: Path
) -> None:
    (tmp_path / "r.md").write_text("````\ncode\n````\n", "utf-8")

    assert "`````\n````\ncode\n````\n`````" in (await reader.expand("@file:r.md")).added


@pytest.mark.parametrize("name", [".env", ".env.local", "id_ed25519", "server.key", "auth.json"])
async def test_files_with_secrets_are_refused(
    reader: ReferenceReader, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_text("TOKEN=hunter2", "utf-8")
    (tmp_path / "link.txt").symlink_to(tmp_path / name)

    for reference in (f"@file:{name}", "@file:link.txt"):
        expanded = await reader.expand(reference)
        assert "hunter2" not in expanded.added
        assert "secrets" in expanded.problems[0]


def test_examples_and_public_keys_are_no_secrets() -> None:
    assert not is_secret(Path("/p/.env.example"))
    assert not is_secret(Path("/home/me/.ssh/id_rsa.pub"))
    assert is_secret(Path("/home/me/.ssh/config"))


async def test_problems_are_reported_and_the_text_is_sent(
    reader: ReferenceReader, tmp_path: Path
) -> None:
    (tmp_path / "binary").write_bytes(b"\0\1\2")

    expanded = await reader.expand("@file:binary @file:gone @git:99 @url:http://127.0.0.1/ @diff")

    assert expanded.added == ""
    assert len(expanded.problems) == 5


async def test_a_long_file_is_cut(reader: ReferenceReader, tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("x" * 150_000, "utf-8")

    expanded = await reader.expand("@file:long.txt")

    assert "cut here: 50,000 characters more" in expanded.added


async def test_a_folder_is_listed(reader: ReferenceReader, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "f.txt").touch()

    assert "```\nsub/\nf.txt\n```" in (await reader.expand("@folder:.")).added


async def test_changes_come_from_git(reader: ReferenceReader, tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
        subprocess.run(
            ["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True
        )

    git("init", "-q")
    (tmp_path / "a.txt").write_text("old\n", "utf-8")
    git("add", ".")
    git("commit", "-q", "-m", "the first commit")
    (tmp_path / "a.txt").write_text("new\n", "utf-8")

    planted = tmp_path / ".venv/bin/git"
    planted.parent.mkdir(parents=True)
    planted.write_text("#!/bin/sh\necho planted\n", "utf-8")
    planted.chmod(0o755)
    path = f"{planted.parent}:{reader.environ['PATH']}"
    reader = replace(reader, environ={**reader.environ, "PATH": path})

    expanded = await reader.expand("@diff @staged @git:1")

    assert "-old\n+new" in expanded.added
    assert "(no changes)" in expanded.added
    assert "the first commit" in expanded.added


async def test_pages_come_through_the_port(tmp_path: Path) -> None:
    async def fetch(url: str) -> str:
        return f"text of {url}"

    reader = ReferenceReader(cwd=tmp_path, environ={}, fetch_url=fetch)

    expanded = await reader.expand("@url:https://example.invalid/x and @url:ftp://example.invalid")

    assert "text of https://example.invalid/x" in expanded.added
    assert "only http" in expanded.problems[0]


@given(st.text(alphabet='@:file ".,diff/x\n', max_size=40))
def test_what_is_found_stands_in_the_text(text: str) -> None:
    for reference in find_references(text):
        assert reference.written in text
        assert reference.kind in ("diff", "staged") or reference.value


def test_mail_addresses_are_no_references() -> None:
    assert find_references("me@diff.example and a@file:b") == []


async def test_the_clipboard_is_read_with_the_program_that_is_there(tmp_path: Path) -> None:
    program = tmp_path / "xclip"
    program.write_text('#!/bin/sh\nexec cat "$CLIP"\n', "utf-8")
    program.chmod(0o755)
    (tmp_path / "clip").write_bytes(PNG)
    environ = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "DISPLAY": ":0",
        "CLIP": str(tmp_path / "clip"),
    }

    picture = await clipboard_image(environ, tmp_path / "cache")

    [kept] = (tmp_path / "cache" / "images").iterdir()
    assert picture.path == str(kept)
    assert kept.read_bytes() == PNG
    assert kept.stat().st_mode & 0o777 == 0o600
    assert picture.media_type == "image/png"


async def test_no_clipboard_is_explained(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="cannot be read here"):
        await clipboard_image({"PATH": str(tmp_path)}, tmp_path)


async def test_a_picture_is_attached_by_its_file(tmp_path: Path) -> None:
    (tmp_path / "p.png").write_bytes(PNG)
    (tmp_path / "t.txt").write_text("text", "utf-8")

    assert await image_file("p.png", tmp_path) == Attachment(
        kind="image",
        path=str(tmp_path / "p.png"),
        name="p.png",
        media_type="image/png",
        size=len(PNG),
    )
    with pytest.raises(HermesError, match="holds no PNG"):
        await image_file("t.txt", tmp_path)


async def test_an_editor_that_does_not_exist_is_explained(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="cannot be run"):
        await edit("text", {"EDITOR": str(tmp_path / "no-editor")})


async def test_text_can_be_changed_in_an_editor(tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nprintf " and more\\n" >> "$1"\n', "utf-8")
    editor.chmod(0o700)

    assert await edit("text", {"VISUAL": str(editor)}) == "text\n and more"
