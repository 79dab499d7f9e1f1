"""schemathesis reads the served OpenAPI document and tries to prove it wrong.

It runs as a command against a real gateway whose model always answers, with
all of its checks: no 5xx, no undeclared status or content type, every answer
fits its schema and its headers, wrong data is refused and right data is taken,
no operation can be used without a good key.
"""

import asyncio
import re
import sys
from pathlib import Path

import pytest

from fakes.api_gateway import KEY, ApiGateway, running_api
from fakes.model_remote import model_process
from fakes.model_script import Script, Step
from fakes.open_runs import no_open_run

TAKES = [200, 201, 202, 204, 400, 401, 403, 404, 409, 429]
MAY_REFUSE = {
    "createChatCompletion": "roles, calls and their results have to make a conversation",
    "createResponse": "items have to make a conversation; options exclude each other",
    "compactResponse": "there has to be something to compact, and a model that does it",
    "countInputTokens": "items have to make a conversation; options exclude each other",
    "createConversation": "items have to make a conversation",
    "createConversationItems": "items have to make a conversation",
    "listConversationItems": "`after` has to be the id of an item",
    "startRun": "messages have to make a conversation; session headers exclude each other",
    "chatInSession": "either `message` or `input`, and they have to make a conversation",
    "streamChatInSession": "either `message` or `input`, and they have to make a conversation",
    "getResponse": "only a response that was made in the background can be streamed again",
    "listInputItems": "`after` has to be the id of an item of this response",
    "createSession": "the title must not be taken, and must have a visible character",
    "changeSession": "the title must not be taken; an empty change is none",
    "forkSession": "the title must not be taken; `through` has to be a message there is",
    "streamRunEvents": "`Last-Event-ID` has to be an event there is",
    "answerRun": "the choice has to be one of those that the run offers",
    "answerApproval": "the choice has to be one of those that were offered",
    "createJob": "schedules and places to deliver to have a grammar; prompt or skill is needed",
    "changeJob": "schedules and places to deliver to have a grammar; prompt or skill is needed",
}
"""Operations that may answer 400 to what fits their schema, and which rule no schema can say."""
FAST = Step(text="Hello there.")


def _settings() -> str:
    # No schema can say that texts have no NUL; that it is refused is tested on its own.
    lines = ["[generation]", "allow-x00 = false", 'codec = "utf-8"', ""]
    for name, reason in MAY_REFUSE.items():
        lines += [f"# {reason}", "[[operations]]", f'include-operation-id = "{name}"']
        lines += [f"checks.positive_data_acceptance.expected-statuses = {TAKES}", ""]
    return "\n".join(lines)


async def _probe(gateway: ApiGateway, folder: Path, *options: str, seconds: float) -> int:
    """Run schemathesis; return how many requests it made."""
    settings = folder / "schemathesis.toml"
    settings.write_text(_settings(), encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(settings), "run"),
        f"{gateway.url}/openapi.json",
        *("--header", f"Authorization: Bearer {KEY}", "--checks", "all"),
        *("--continue-on-failure", "--no-color", "--request-timeout", "20"),
        *("--suppress-health-check", "all"),
        # The body is that of `createResponse`, and takes as long.
        *("--exclude-operation-id", "countInputTokens"),
        *options,
        cwd=folder,
        env=gateway.hermes.environ,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(seconds):
            told = (await process.stdout.read()).decode()
            code = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert code == 0, told[-20_000:]
    found = re.search(r"(\d+) generated, (\d+) passed", told)
    assert found is not None, told[-5_000:]
    return int(found[1])


async def _hold(folder: Path, *options: str, at_least: int, seconds: float) -> None:
    quiet = {"key": KEY, "port": 0, "max_auth_failures": 1_000_000}
    api = {"api_server": {"enabled": True, "extra": quiet}}
    script = Script(default=FAST)
    async with model_process(folder, script) as model:
        async with running_api(folder, model.base_url, platforms=api) as gateway:
            made = await _probe(gateway, folder, *options, seconds=seconds)
            assert made >= at_least
            async with gateway.client() as client:
                assert (await client.get("/health")).status_code == 200
                await no_open_run(client, 10)
            assert "Traceback" not in gateway.log()


@pytest.mark.timeout(260)
async def test_the_document_and_the_server_say_the_same(tmp_path: Path) -> None:
    phases = ("--phases", "examples,coverage,fuzzing,stateful", "--max-examples", "2")
    fixed = ("--seed", "20260101", "--generation-deterministic")
    await _hold(tmp_path, *phases, *fixed, at_least=3_000, seconds=240)


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    ("phases", "effort"),
    [("coverage,fuzzing", ("--max-examples", "120")), ("stateful", ("--max-time", "45"))],
)
async def test_they_still_do_after_a_long_search(
    tmp_path: Path, phases: str, effort: tuple[str, str]
) -> None:
    wanted = ("--phases", phases, *effort, "--generation-database", "none")
    await _hold(tmp_path, *wanted, at_least=300, seconds=1400)
