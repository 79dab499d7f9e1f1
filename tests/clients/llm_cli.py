"""`llm`, the command of Simon Willison, with Hermes as an OpenAI-compatible model."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from common import ADA, ASKS, CLEAN, FOUND, HELLO, KEY, SUNNY, URL, Person, play, same

FOLDER = Path(tempfile.mkdtemp(dir=os.environ["CLIENT_FOLDER"]))
MODEL = {
    "model_id": "hermes",
    "model_name": "hermes",
    "api_base": URL,
    "api_key_name": "hermes",
    "supports_tools": True,
    "supports_schema": True,
}
(FOLDER / "extra-openai-models.yaml").write_text(json.dumps([MODEL]), encoding="utf-8")
FUNCTION = 'def weather(city: str) -> str:\n    "Tells the weather."\n    return "25 degrees"\n'


def llm(*words):
    command = [str(Path(sys.executable).with_name("llm")), "-m", "hermes", "--key", KEY, *words]
    environ = {**os.environ, "LLM_USER_PATH": str(FOLDER)}
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=30)  # noqa: PLW1510


def said(*words):
    done = llm(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def chat():
    same(said("--no-stream", "Hi"), HELLO)


def stream():
    same(said("Hi"), HELLO)


def own_tool():
    same(said("own llm_cli chat"), FOUND)


def client_tool():
    assert said("--functions", FUNCTION, "weather").endswith(SUNNY)
    assert said("--no-stream", "--functions", FUNCTION, "weather").endswith(SUNNY)


def shape():
    same(Person.model_validate_json(said("--schema", "name, age int", "a person")), ADA)


def consent():
    assert ASKS in said("Please clean llm_cli-chat.")
    same(said("-c", "yes"), CLEAN)


def error():
    failed = llm("--no-stream", "fail")
    assert failed.returncode != 0
    assert "No." in failed.stderr, failed.stderr


listed = (chat, stream, own_tool, client_tool, shape, consent, error)
play({case.__name__: case for case in listed})
