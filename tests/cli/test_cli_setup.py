"""`hermes setup`: for scripts, and safe to run again."""

from pathlib import Path

import pytest

from fakes.gguf import gguf_bytes
from fakes.hermes_cli import hermes, in_terminal
from fakes.local_servers import model_server
from hermes.models.local.files import EMBEDDED_FILE


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a home in which the embedded model is already there."""
    home = tmp_path / "home"
    (home / "models").mkdir(parents=True)
    (home / "models" / EMBEDDED_FILE).write_bytes(gguf_bytes({"general.architecture": "llama"}))
    return home


def test_without_questions_the_embedded_model_is_chosen_and_called_a_toy(home: Path) -> None:
    done = hermes(home, "setup", "--non-interactive")
    assert done.returncode == 0, done.stderr
    assert "toy-sized" in done.stdout
    assert "provider: embedded" in (home / "config.yaml").read_text("utf-8")


def test_without_a_terminal_nothing_is_asked(home: Path) -> None:
    assert hermes(home, "setup").returncode == 0
    assert "smollm2-135m" in (home / "config.yaml").read_text("utf-8")


def test_running_it_again_keeps_what_was_chosen(home: Path) -> None:
    (home / "config.yaml").write_text("model: gpt-5.2\n", "utf-8")
    done = hermes(home, "setup", "--non-interactive")
    assert "nothing changed" in done.stdout
    assert (home / "config.yaml").read_text("utf-8") == "model: gpt-5.2\n"
    assert hermes(home, "setup", "--local").returncode == 0
    assert "embedded" in (home / "config.yaml").read_text("utf-8")


def test_a_provider_with_its_key_is_written_and_the_key_goes_to_env(home: Path) -> None:
    args = ("--provider", "openai", "--model", "gpt-5.2", "--key-env", "OPENAI_API_KEY")
    done = hermes(home, "setup", *args, OPENAI_API_KEY="sk-verysecretvalue12")
    assert done.returncode == 0, done.stderr
    assert "secretvalue" not in done.stdout + done.stderr
    assert "secretvalue" not in (home / "config.yaml").read_text("utf-8")
    assert "OPENAI_API_KEY=sk-verysecretvalue12" in (home / ".env").read_text("utf-8")
    assert (home / ".env").stat().st_mode & 0o077 == 0
    again = hermes(home, "setup", *args)
    assert again.returncode == 0
    assert "already chosen" in again.stdout


def test_a_key_under_another_name_is_found_later(home: Path) -> None:
    args = ("--provider", "openai", "--model", "gpt-5.2", "--key-env", "WORK_OPENAI_KEY")
    done = hermes(home, "setup", *args, WORK_OPENAI_KEY="sk-verysecretvalue12")
    assert done.returncode == 0, done.stderr
    assert "Still missing" not in done.stderr
    assert "WORK_OPENAI_KEY" in (home / "config.yaml").read_text("utf-8")


def test_a_key_that_is_not_set_changes_nothing(home: Path) -> None:
    args = ("--provider", "openai", "--model", "gpt-5.2", "--key-env", "NOT_SET_KEY")
    done = hermes(home, "setup", *args)
    assert done.returncode == 2
    assert "NOT_SET_KEY is not set" in done.stderr
    assert not (home / "config.yaml").exists()


def test_options_that_contradict_each_other_are_refused(home: Path) -> None:
    assert hermes(home, "setup", "--local", "--provider", "openai").returncode == 2
    missing = hermes(home, "setup", "--provider", "openai")
    assert missing.returncode == 2
    assert "--model" in missing.stderr


def test_a_server_of_ones_own_needs_only_its_address(home: Path) -> None:
    url = "http://127.0.0.1:4321/v1"
    done = hermes(home, "setup", "--base-url", url, "--model", "mine")
    assert done.returncode == 0, done.stderr
    assert url in (home / "config.yaml").read_text("utf-8")


def test_in_a_terminal_a_person_enters_a_key_that_is_not_shown(home: Path) -> None:
    screen = in_terminal(
        home,
        ["setup"],
        [
            ("Another provider", b"\x1b[B\r"),
            ("Whose key do you have?", b"\r"),
            ("OPENROUTER_API_KEY (not shown)", b"sk-or-typedsecret99\r"),
            ("Which model?", b"\r"),
        ],
    )
    assert "answers from now on" in screen
    assert "typedsecret" not in screen
    assert "OPENROUTER_API_KEY=sk-or-typedsecret99" in (home / ".env").read_text("utf-8")
    assert "provider: openrouter" in (home / "config.yaml").read_text("utf-8")


def test_a_server_of_ones_own_is_asked_for_and_tested(home: Path) -> None:
    with model_server(["mine-7b"]) as url:
        screen = in_terminal(
            home,
            ["setup"],
            [
                ("A server of your own", b"3"),
                ("Address", b"http://127.0.0.1:9/v1\r"),
                ("Enter another address?", b"y\r"),
                ("y\r\n", url.removesuffix("/v1").encode() + b"\r"),
                ("Which model?", b"\r"),
            ],
        )
    assert "http://127.0.0.1:9/v1: nothing answers there" in screen
    assert f"{url} answers" in screen
    text = (home / "config.yaml").read_text("utf-8")
    assert f"base_url: '{url}'" in text
    assert "mine-7b" in text


def test_a_wrong_path_is_told_from_a_missing_model(home: Path) -> None:
    with model_server(["mine-7b"]) as url:
        missing = hermes(home, "setup", "--base-url", url, "--model", "other")
        wrong = hermes(home, "setup", "--base-url", f"{url}/nonsense/v1", "--model", "mine-7b")
        shorter = url.removesuffix("/v1")
        below = hermes(home, "setup", "--base-url", shorter, "--model", "mine-7b")
        good = hermes(home, "setup", "--base-url", url, "--model", "mine-7b")
    assert "has no model `other`; it has: mine-7b" in missing.stderr
    assert "no model API at this path" in wrong.stderr
    assert f"the API is at {url}" in below.stderr
    assert good.stderr == ""
    with model_server([], status=401) as url:
        locked = hermes(home, "setup", "--base-url", url, "--model", "mine-7b")
    assert "needs a key" in locked.stderr
