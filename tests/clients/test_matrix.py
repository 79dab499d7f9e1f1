"""The matrix: published client libraries, unmodified, against one real gateway.

Each is a program beside this file that plays the same cases in one process of its own: a plain
chat, a stream, a tool of the agent, a tool of the client, an answer in a shape, consent by text and
an error; on chat completions and, where it speaks them, on responses (`responses_...`).
`scripts/test-clients.sh` installs them, `make clients` does both; what a client does not do
is in `LISTED`.
"""

import asyncio
import json
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from fakes.api_clients import ClientWorld
from fakes.api_gateway import KEY, running_api
from fakes.model import Call, FakeModelServer, Rule, Script, Step

HERE = Path(__file__).parent
HOME = HERE.parents[1] / ".venv" / "clients"
CLIENTS = {
    **dict.fromkeys(("openai_python", "agents_python", "pydantic_ai_python"), "python"),
    **dict.fromkeys(("langchain_python", "llm_cli"), "python"),
    "litellm_python": "litellm",
    "instructor_python": "instructor",
    **dict.fromkeys(("openai_npm", "agents_npm", "vercel_npm"), "npm"),
}
"""Program -> the folder with what it needs."""
CASES = ("chat", "stream", "own_tool", "client_tool", "shape", "consent", "error")
LISTED: dict[tuple[str, str], str] = {
    ("instructor_python", "client_tool"): "it has no loop for tools: they are its shapes",
}
"""What a client cannot do, or does not, with the reason."""
RESPONSES = frozenset(CLIENTS) - {"llm_cli", "instructor_python"}
ADA = {"name": "Ada", "age": 36}

pytestmark = [pytest.mark.slow, pytest.mark.clients, pytest.mark.asyncio(loop_scope="module")]


def _shell(command: str) -> Call:
    return Call(name="terminal", arguments={"command": command})


def _script() -> Script:
    weather = Call(name="weather", arguments={"city": "Rome"})
    rules = [
        Rule(
            contains=f"clean {client}-{api}.",
            steps=[
                Step(text="Cleaning up.", calls=[_shell(f"rm -rf {client}-{api}")]),
                Step(text="It is clean."),
            ],
        )
        for client in CLIENTS
        for api in ("chat", "responses")
    ]
    rules += [
        Rule(contains="own ", steps=[Step(calls=[_shell("echo found")]), Step(text="I looked.")]),
        Rule(
            contains="weather",
            steps=[
                Step(calls=[_shell("echo found")]),
                Step(calls=[weather]),
                Step(text="Sunny in Rome."),
            ],
        ),
        *(
            Rule(
                contains=f"by the tool {name}",
                steps=[Step(calls=[Call(name=name, arguments=ADA)]), Step(text="Done.")],
            )
            for name in ("final_result", "Person", "PartialPerson")
        ),
        Rule(contains="person", steps=[Step(text=json.dumps(ADA))]),
        Rule(contains="fail", steps=[Step(status=400, body={"error": {"message": "No."}})]),
    ]
    return Script(rules=rules, default=Step(text="Hello from the agent."))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ClientWorld]:
    local = {"backend": "local"}
    async with (
        FakeModelServer(_script()) as model,
        running_api(tmp_path_factory.mktemp("matrix"), model.base_url, terminal=local) as gateway,
    ):
        yield ClientWorld(gateway, model)


async def played(world: ClientWorld, client: str, folder: Path) -> dict[str, str | None]:
    """Run the program of a client; return what it says of each case: None if it passed."""
    home = HOME / CLIENTS[client]
    program = next(HERE.glob(f"{client}.*"))
    with_ = shutil.which("node") if program.suffix == ".mjs" else home / "bin" / "python"
    process = await asyncio.create_subprocess_exec(
        *(str(with_), str(program)),
        env={
            "HERMES_URL": world.gateway.url,
            "HERMES_KEY": KEY,
            "CLIENT_FOLDER": str(home if program.suffix == ".mjs" else folder),
            "HOME": str(folder),
            "PATH": "/usr/bin:/bin",
            "OPENAI_API_KEY": "none",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        },
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(150):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    lines = [json.loads(line) for line in out.decode().splitlines() if line.startswith('{"case"')]
    assert lines, err.decode()
    return {line["case"]: line["failed"] for line in lines}


@pytest.mark.timeout(200)
@pytest.mark.parametrize("client", CLIENTS)
async def test_a_client_works_unmodified(world: ClientWorld, client: str, tmp_path: Path) -> None:
    if not (HOME / CLIENTS[client]).exists():
        pytest.skip("scripts/test-clients.sh did not install it")
    apis = ("chat", "responses") if client in RESPONSES else ("chat",)
    workspace = world.gateway.hermes.home / "workspace"
    folders = [workspace / f"{client}-{api}" for api in apis]
    for each in folders:
        each.mkdir(parents=True)
    found = await played(world, client, tmp_path)
    told = ", ".join(f"{case}: {'no' if said else 'ok'}" for case, said in found.items())
    sys.stdout.write(f"\n{client}: {told}\n")
    prefixes = {"chat": "", "responses": "responses_"}
    wanted = {prefixes[api] + case for api in apis for case in CASES}
    listed = {case for program, case in LISTED if program == client}
    assert wanted <= found.keys() | listed
    failed = {case: said for case, said in found.items() if said is not None}
    assert not failed.keys() - listed, "\n".join(f"{case}: {said}" for case, said in failed.items())
    assert not any(each.exists() for each in folders), "it was not cleaned"
    for api in apis:
        asked = world.asked(f"own {client} {api}")
        assert len(asked) % 2 == 0, "a turn with one tool of the agent asks its model twice"
        assert len(asked) <= 4, "the client ran a further turn"
