import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hermes.cli.commands.config import command
from hermes.domain.errors import ConfigError, HermesError, NotFound, UsageError

SECRET = "hunter2hunter2"


class Shell:
    """Runs `hermes config ...` in a home of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config = root / "config.yaml"
        self.env = root / ".env"
        self.environ: dict[str, str | None] = {"HERMES_HOME": str(root)}

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(command, arguments, env=self.environ)

    def out(self, *arguments: str) -> str:
        result = self.run(*arguments)
        assert result.exit_code == 0, result.output
        assert SECRET not in result.output
        return result.output

    def fails(self, kind: type[HermesError], *arguments: str) -> HermesError:
        result = self.run(*arguments)
        assert isinstance(result.exception, kind), result.output
        assert SECRET not in result.exception.message + result.exception.hint
        return result.exception


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path / "home")


@pytest.fixture
def filled(shell: Shell) -> Shell:
    shell.root.mkdir()
    shell.config.write_text(
        f"model: {{default: gpt-5, api_key: {SECRET}}}\n"
        "terminal:\n  lifetime_seconds: 7\n"
        f"platforms: {{api_server: {{extra: {{key: {SECRET}, note: 'say {SECRET}'}}}}}}\n"
    )
    return shell


def test_paths_are_printed_and_nothing_is_created(shell: Shell) -> None:
    assert shell.out("path") == f"{shell.config}\n"
    assert shell.out("env-path") == f"{shell.env}\n"
    assert not shell.root.exists()


@pytest.mark.parametrize(
    ("key", "value"),
    [("terminal.backend", "local"), ("TERMINAL_ENV", "local"), ("terminal", "{backend: local}")],
)
def test_whoever_chooses_to_run_commands_here_is_told_what_that_means(
    shell: Shell, key: str, value: str
) -> None:
    told = shell.out("set", key, value)
    assert "run on this computer itself, with your rights" in told
    assert "It is no wall" in told
    assert "hermes config unset terminal.backend" in told
    assert "this computer" not in shell.out("set", key, value.replace("local", "docker"))
    assert "this computer" not in shell.out("set", "terminal.timeout", "60")


def test_show_lists_what_differs_with_its_origin_and_without_secrets(filled: Shell) -> None:
    assert filled.out("show").splitlines() == [
        "model.model: gpt-5  # config.yaml:1",
        "model.api_key: ***  # config.yaml:1",
        "terminal.lifetime_seconds: 7  # config.yaml:3",
        "platforms.api_server.extra.key: ***  # config.yaml:4",
        "platforms.api_server.extra.note: say ***model.api_key***  # config.yaml:4",
    ]
    everything = filled.out("show", "--all")
    assert "approvals.timeout: 300  # default\n" in everything
    assert json.loads(filled.out("show", "--json"))["terminal.lifetime_seconds"] == 7
    assert json.loads(filled.out("show", "--all", "--json"))["approvals"]["mode"] == "manual"


def test_show_says_so_when_everything_is_at_its_default(shell: Shell) -> None:
    assert "Everything is at its default" in shell.out("show")


def test_get_prints_the_effective_value_not_the_configured_one(filled: Shell) -> None:
    assert filled.out("get", "terminal.lifetime_seconds") == "7\n"
    assert filled.out("get", "approvals.mode", "--json") == '"manual"\n'
    assert filled.out("get", "model.api_key") == "***\n"
    assert json.loads(filled.out("get", "toolsets", "--json")) == ["hermes-cli"]
    assert json.loads(filled.out("get", "platforms", "--json"))["api_server"]["extra"]["key"] == (
        "***"
    )
    filled.environ["TERMINAL_LIFETIME_SECONDS"] = "9"
    assert filled.out("get", "terminal.lifetime_seconds") == "9\n"
    assert "terminal.nope" in filled.fails(NotFound, "get", "terminal.nope").message


def test_get_tells_whether_a_secret_is_set(shell: Shell) -> None:
    filled = shell.fails(NotFound, "get", "OPENAI_API_KEY")
    assert "hermes config set OPENAI_API_KEY" in filled.hint
    shell.out("set", "OPENAI_API_KEY", SECRET)
    assert shell.out("get", "OPENAI_API_KEY") == "***\n"
    assert shell.env.read_text() == f"OPENAI_API_KEY={SECRET}\n"


def test_set_and_unset_write_the_file_and_name_it(filled: Shell) -> None:
    assert filled.out("set", "terminal.lifetime_seconds", "60") == (
        f"terminal.lifetime_seconds is set in {filled.config}\n"
    )
    assert "  lifetime_seconds: 60\n" in filled.config.read_text()
    assert (
        filled.out("unset", "terminal.lifetime_seconds") == "terminal.lifetime_seconds is removed\n"
    )
    assert "terminal" not in filled.config.read_text()
    assert "is not set" in filled.fails(NotFound, "unset", "terminal.lifetime_seconds").message


def test_set_refuses_what_the_schema_does_not_allow(filled: Shell) -> None:
    before = filled.config.read_text()
    error = filled.fails(ConfigError, "set", "terminal.backend", "dockr")
    assert "did you mean `docker`" in error.message
    assert "--force" in filled.fails(UsageError, "set", "terminal.tiemout", "1").hint
    filled.fails(ConfigError, "set", "platforms.x.token.deeper", SECRET)
    price = "providers.office.models.m-1.price"
    error = filled.fails(ConfigError, "set", price, "{input: cheap, output: 2}")
    assert f"{price}.input should be a number of at least 0, but is 'cheap'" in error.message
    assert (
        "price.output is missing" in filled.fails(ConfigError, "set", price, "{input: 1}").message
    )
    error = filled.fails(ConfigError, "set", "approvals.timeout", "-5")
    assert "at least 0, but is -5" in error.message
    error = filled.fails(ConfigError, "set", "model.api_mode", "mesages")
    assert "did you mean `messages`" in error.message
    assert filled.config.read_text() == before
    filled.out("set", "terminal.tiemout", "1", "--force")
    assert "tiemout: 1" in filled.config.read_text()


def test_a_key_is_known_by_its_older_name(shell: Shell) -> None:
    shell.out("set", "model.default", "m-1")
    assert shell.out("get", "model.default") == shell.out("get", "model.model") == "m-1\n"
    assert "from     config.yaml" in shell.out("explain", "model.default")


def test_set_says_when_something_else_decides(filled: Shell) -> None:
    filled.environ["TERMINAL_LIFETIME_SECONDS"] = "9"
    said = filled.out("set", "terminal.lifetime_seconds", "60")
    assert "note: env TERMINAL_LIFETIME_SECONDS wins over config.yaml for terminal.life" in said
    filled.environ["MY_TOKEN"] = "other"
    assert "MY_TOKEN wins over .env" in filled.out("set", "MY_TOKEN", SECRET)


def test_explain_tells_meaning_value_origin_and_default(filled: Shell) -> None:
    text = filled.out("explain", "terminal.lifetime_seconds")
    assert text.splitlines() == [
        "terminal.lifetime_seconds",
        "  Seconds that an unused environment is kept.",
        "  value    7",
        "  from     config.yaml:3",
        "  default  300",
        "  accepts  a number of at least 0",
        "  variable TERMINAL_LIFETIME_SECONDS",
    ]
    filled.environ["TERMINAL_LIFETIME_SECONDS"] = "9"
    assert "  from     env TERMINAL_LIFETIME_SECONDS\n" in filled.out(
        "explain", "terminal.lifetime_seconds"
    )
    assert "  from     default\n" in filled.out("explain", "approvals.mode")
    assert "  default  120\n" in filled.out("explain", "auxiliary.compression.timeout")
    assert "The model that gives sessions their titles." in filled.out(
        "explain", "auxiliary.title_generation"
    )
    assert "  value    ***\n" in filled.out("explain", "model.api_key")


def test_check_lists_all_problems_and_fails_only_on_errors(shell: Shell) -> None:
    assert "is valid" in shell.out("check")
    shell.root.mkdir()
    shell.config.write_text("terminal: {tiemout: 1}\n")
    assert "warning: config.yaml:1: terminal.tiemout is not a known key" in shell.out("check")
    shell.config.write_text(
        "security: {website_blocklist: {enabled: true, shared_files: [/nowhere/list]}}\n"
    )
    assert "/nowhere/list cannot be read" in shell.out("check")
    shell.config.write_text("terminal: {lifetime_seconds: x, backend: y}\nnope: 1\n")
    result = shell.run("check")
    assert result.exit_code == 78
    assert result.output.count("error: ") == 2
    assert result.output.count("warning: ") == 1


@pytest.mark.parametrize("broken", ["a: [1\n", "terminal: {lifetime_seconds: x}\n", "- list\n"])
def test_commands_that_repair_work_on_a_broken_file(shell: Shell, broken: str) -> None:
    shell.root.mkdir()
    shell.config.write_text(broken)
    shell.out("path")
    shell.out("env-path")
    assert shell.run("check").exit_code == 78
    shell.out("set", "SOME_API_KEY", SECRET)
    shell.environ["EDITOR"] = f"{sys.executable} -c \"import sys; open(sys.argv[1], 'w').close()\""
    shell.out("edit")
    assert shell.config.read_text() == ""
    assert "is valid" in shell.out("check")


def test_edit_checks_what_was_written(shell: Shell) -> None:
    program = "import sys; open(sys.argv[1], 'w').write('terminal: {lifetime_seconds: x}')"
    shell.environ["VISUAL"] = f'{sys.executable} -c "{program}"'
    result = shell.run("edit")
    assert result.exit_code == 78
    assert "terminal.lifetime_seconds should be" in result.output
    shell.environ["VISUAL"] = "/no/such/editor"
    assert "/no/such/editor" in shell.fails(UsageError, "edit").message
    shell.environ["VISUAL"] = f"{sys.executable} -c 'raise SystemExit(3)'"
    assert "editor failed" in shell.fails(UsageError, "edit").message


def test_migrate_writes_the_current_version_and_names_the_backup(shell: Shell) -> None:
    shell.root.mkdir()
    shell.config.write_text("# mine\n_config_version: 20\nfallback_model: {provider: openai}\n")
    text = shell.out("migrate")
    assert "From version 20 to 34" in text
    (backup,) = (shell.root / "backups").iterdir()
    assert str(backup) in text
    assert "# mine\n_config_version: 34\n" in shell.config.read_text()
    assert "Nothing to do" in shell.out("migrate")


def test_the_whole_program_prints_a_sentence_and_a_next_step(filled: Shell) -> None:
    filled.config.write_text("terminal: {lifetime_seconds: soon}\n")
    done = subprocess.run(
        [sys.executable, "-m", "hermes.cli", "config", "show"],
        env={"HERMES_HOME": str(filled.root)},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == 78
    assert done.stdout == ""
    assert done.stderr == (
        "hermes: config.yaml:1: terminal.lifetime_seconds should be a number of at least 0,"
        " but is 'soon'.\n  -> Fix it with: hermes config edit\n"
    )


def test_settings_of_a_platform_are_found_in_its_older_block_and_in_the_environment(
    shell: Shell,
) -> None:
    shell.root.mkdir()
    shell.config.write_text("telegram: {require_mention: false}\n")
    shell.env.write_text(f"TELEGRAM_BOT_TOKEN=123456:{SECRET}{SECRET}\n")
    shell.env.chmod(0o600)
    assert shell.out("get", "telegram.require_mention") == "false\n"
    assert "config.yaml:1" in shell.out("explain", "telegram.require_mention")
    shown = shell.out("show")
    assert "platforms.telegram.token: ***  # .env:1 TELEGRAM_BOT_TOKEN" in shown
    assert "platforms.telegram.extra.require_mention: false" in shown
