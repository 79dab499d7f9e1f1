"""Every example in the documentation of the HTTP door, run against a real gateway.

Blocks marked `bash`, `python` and `js` are run as they stand, the shell blocks
of a page one after the other in one shell. Address and key come from variables
that the examples use. What stands in `<!-- prints: a | b -->` after a block has
to be in its output.
"""

import asyncio
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec import Struct

from fakes.api_gateway import KEY, ApiGateway, running_api
from fakes.command import Hermes
from fakes.model import Call, FakeModelServer, Rule, Script, Step

ROOT = Path(__file__).parents[2]
HOW_TO = ROOT / "docs" / "how-to"
NPM = ROOT / ".venv" / "npm" / "node_modules"
BLOCK = re.compile(
    r"^```(?P<kind>bash|python|js|sh)\n(?P<text>.*?)^```\n(<!-- prints: (?P<prints>.*?) -->\n)?",
    re.MULTILINE | re.DOTALL,
)
SECRET = "secret-of-the-route-in-the-docs"
END = "--- end of a block ---"
PROGRAMS = ("bash", "curl", "jq", "openssl")

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, PROGRAMS)), reason=f"one of {', '.join(PROGRAMS)} is not installed"
)


class Block(Struct, frozen=True):
    """An example."""

    kind: str
    text: str
    prints: tuple[str, ...]


def blocks(page: Path, *kinds: str) -> list[Block]:
    """Return the examples of these kinds in a page."""
    found = []
    for each in BLOCK.finditer(page.read_text("utf-8")):
        prints = tuple((each["prints"] or "").split(" | ")) if each["prints"] else ()
        if each["kind"] in kinds:
            found.append(Block(each["kind"], each["text"], prints))
    return found


def script() -> Script:
    def shell(command: str) -> Step:
        return Step(calls=[Call(name="terminal", arguments={"command": command})])

    weather = Step(calls=[Call(name="weather", arguments={"city": "Rome"})])
    return Script(
        rules=[
            Rule(contains="What is my cat called", steps=[Step(text="Your cat is called Tom.")]),
            Rule(contains="My cat is called", steps=[Step(text="Noted.")]),
            Rule(contains="List the files", steps=[shell("ls"), Step(text="There are none.")]),
            Rule(contains="Delete the folder", steps=[shell("rm -rf build"), Step(text="Gone.")]),
            Rule(contains="weather in Rome", steps=[weather, Step(text="Sunny in Rome.")]),
        ],
        default=Step(text="Hello from the agent."),
    )


@asynccontextmanager
async def documented(folder: Path) -> AsyncIterator[dict[str, str]]:
    """Run a gateway as the pages describe it; gives the variables of their examples."""
    routes = {"ci": {"secret": SECRET, "prompt": "{name} was deployed", "deliver": "log"}}
    webhook = {"enabled": True, "extra": {"port": 0, "routes": routes}}
    async with FakeModelServer(script()) as model:
        async with running_api(
            folder,
            model.base_url,
            platforms={"webhook": webhook},
            terminal={"backend": "local"},
        ) as gateway:
            address = gateway.listening("webhook")
            port = address.rpartition(":")[2]
            environ = surroundings(gateway)
            yield environ | {"HERMES_WEBHOOKS": address, "WEBHOOK_PORT": port}


def surroundings(gateway: ApiGateway) -> dict[str, str]:
    """Return the environment of an example; there, curl fails where the server refuses."""
    folder = gateway.hermes.folder
    tools = folder / "bin"
    tools.mkdir(exist_ok=True)
    hermes = tools / "hermes"
    hermes.write_text(f'#!/bin/sh\nexec {sys.executable} -m hermes.cli "$@"\n', encoding="utf-8")
    hermes.chmod(0o755)
    (folder / ".curlrc").write_text("fail-with-body\nmax-time = 20\n", encoding="utf-8")
    return gateway.hermes.environ | {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "HERMES_URL": gateway.url,
        "HERMES_KEY": KEY,
        "SECRET": SECRET,
    }


async def run(*command: str, folder: Path, environ: dict[str, str]) -> str:
    """Run a program to its good end and return all it printed."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env=environ,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(40):
            output = (await process.communicate())[0].decode()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, output
    return output


def check(block: Block, output: str) -> None:
    missing = [piece for piece in block.prints if piece.lower() not in output.lower()]
    assert not missing, f"{block.text}\nprinted:\n{output}"


@pytest.mark.parametrize(
    ("page", "count"), [("api", 10), ("keys", 1), ("open-webui", 1), ("webhooks", 2)]
)
async def test_the_commands_of_a_page_do_what_it_says(
    tmp_path: Path, page: str, count: int
) -> None:
    found = blocks(HOW_TO / f"{page}.md", "bash")
    assert len(found) == count
    whole = "".join(f"{block.text}echo '{END}'\n" for block in found)
    async with documented(tmp_path) as environ:
        output = await run(
            "bash", "-euo", "pipefail", "-c", whole, folder=tmp_path, environ=environ
        )
    for block, printed in zip(found, output.split(END), strict=False):
        check(block, printed)
        if "Idempotency-Key" in block.text:
            first, second = printed.split()
            assert first == second, "the page says that both attempts print the same id"


async def test_the_python_programs_do_what_the_page_says(tmp_path: Path) -> None:
    found = blocks(HOW_TO / "api.md", "python")
    assert len(found) == 2
    async with documented(tmp_path) as environ:
        for block in found:
            output = await run(sys.executable, "-c", block.text, folder=tmp_path, environ=environ)
            check(block, output)


@pytest.mark.skipif(not shutil.which("node") or not NPM.exists(), reason="no node, or no openai")
async def test_the_javascript_program_does_what_the_page_says(tmp_path: Path) -> None:
    [block] = blocks(HOW_TO / "api.md", "js")
    (tmp_path / "node_modules").symlink_to(NPM)
    program = tmp_path / "program.mjs"
    program.write_text(block.text, encoding="utf-8")
    async with documented(tmp_path) as environ:
        check(block, await run("node", str(program), folder=tmp_path, environ=environ))


async def test_the_first_steps_lead_to_a_server_that_answers(tmp_path: Path) -> None:
    [steps] = blocks(HOW_TO / "api.md", "sh")
    first = blocks(HOW_TO / "api.md", "bash")[0]
    start = "hermes gateway run\n"
    assert steps.text.endswith(start)
    async with FakeModelServer(script()) as model:
        hermes = Hermes(tmp_path, model.base_url)
        gateway = ApiGateway(hermes)
        environ = surroundings(gateway)
        told = steps.text.removesuffix(start) + "printenv HERMES_KEY | tail -n 1\n"
        output = await run("bash", "-euc", told, folder=tmp_path, environ=environ)
        # Only the port is another one than on the page.
        hermes.environ["API_SERVER_PORT"] = "0"
        await gateway.start()
        try:
            assert f"the API is at {gateway.url}/v1" in gateway.log()
            variables = {"HERMES_URL": gateway.url, "HERMES_KEY": output.split()[-1]}
            answer = await run(
                "bash", "-euc", first.text, folder=tmp_path, environ=environ | variables
            )
            check(first, answer)
        finally:
            await gateway.kill()


def test_the_readme_shows_the_same_request() -> None:
    shown = blocks(ROOT / "README.md", "bash")
    assert [block.text for block in shown] == [blocks(HOW_TO / "api.md", "bash")[0].text]
