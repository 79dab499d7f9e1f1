"""Platforms are found by entry points, and each may have several accounts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.package import install
from hermes.app.chat_door import _access_places
from hermes.app.doubts import config_doubts
from hermes.app.options import AppOptions
from hermes.app.platforms import enabled_accounts, idle_settings, renewed_accounts
from hermes.app.settings import access_settings
from hermes.config.loader import LoadedConfig, load_config
from hermes.config.paths import HermesHome
from hermes.control.admission.authz import Authorizer
from hermes.domain.errors import Conflict
from hermes.domain.inbound import Chat, ChatKind, Sender
from hermes.entry.chat.telegram.adapter import TelegramAdapter
from hermes.testing import FakeClock

NTFY = """
from hermes.domain.platforms import Capabilities, ChatPlatform, Credential

PLATFORM = ChatPlatform(
    name="ntfy",
    label="ntfy",
    capabilities=Capabilities(max_length=4000),
    adapter="ntfy_adapter:Adapter",
    credentials=(
        Credential(key="topic", variable="NTFY_TOPIC", label="topic"),
        Credential(
            key="token", variable="NTFY_TOKEN", label="token", shape="tk_[a-z0-9]{8}", mark="tk_"
        ),
    ),
    setup="hermes config set NTFY_TOPIC <topic>",
)
"""
PROBE = """
import json, sys
from pathlib import Path
from hermes.app.platforms import enabled_platforms
from hermes.config.loader import load_config
from hermes.config.paths import HermesHome
from hermes.config.secrets import Redactor, Secrets

loaded = load_config(HermesHome(root=Path(sys.argv[1])), {"NTFY_TOPIC": "t", "NTFY_TOKEN": "x"})
print(json.dumps({
    "on": [each.name for each in enabled_platforms(loaded)],
    "block": loaded.config.platforms["ntfy"].extra,
    "redacted": Redactor(Secrets({})).redact("see tk_12345678 there"),
    "adapters": [m for m in sys.modules if m.startswith("httpx") or m.endswith(".adapter")],
}))
"""


def test_an_installed_package_brings_a_platform_without_a_line_in_the_core(tmp_path: Path) -> None:
    package, home = tmp_path / "site", tmp_path / "home"
    points = "[hermes.platforms]\nbroken = no_such_module:PLATFORM\nntfy = ntfy_hermes:PLATFORM\n"
    install(package, "ntfy_hermes", NTFY, points)
    home.mkdir()
    (home / "config.yaml").write_text("ntfy: {require_mention: false}\n")
    done = subprocess.run(
        [sys.executable, "-c", PROBE, str(home)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(package)},
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "on": ["ntfy"],
        "block": {"require_mention": False, "topic": "t"},
        "redacted": "see ***NTFY_TOKEN*** there",
        "adapters": [],
    }
    # A package that cannot be loaded is named and takes nothing else with it.
    assert "The chat platform broken is left out" in done.stderr


class Home:
    """A home whose configuration changes."""

    def __init__(self, root: Path) -> None:
        self.home = HermesHome(root=root)
        self.environ = {"TELEGRAM_BOT_TOKEN": "1:env", "XDG_STATE_HOME": str(root / "state")}
        self.loaded: LoadedConfig

    def write(self, text: str) -> None:
        self.home.config_file.write_text(text)
        self.loaded = load_config(self.home, self.environ)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_each_account_has_its_own_settings_over_those_of_the_platform(home: Home) -> None:
    home.write(
        "platforms: {telegram: {channel_prompts: {'5': all},"
        " accounts: {work: {token: '2:work'}, play: {channel_prompts: {'5': play}}}}}\n"
    )
    options = AppOptions(home=home.home, environ=home.environ, cwd=home.home.root)
    work, play = enabled_accounts(lambda: home.loaded, options, FakeClock())
    assert (work.name, play.name) == ("telegram:work", "telegram:play")
    assert [each.make().account for each in (work, play)] == ["2", "1"]
    assert [each.channel_prompt("5", None) for each in (work, play)] == ["all", "play"]


def options_of(home: Home) -> AppOptions:
    return AppOptions(home=home.home, environ=home.environ, cwd=home.home.root)


@pytest.mark.parametrize(
    ("platform", "key", "variable"),
    [
        ("telegram", "token", "TELEGRAM_BOT_TOKEN"),
        ("discord", "token", "DISCORD_BOT_TOKEN"),
        ("slack", "app_token: xapp-2, token", "SLACK_BOT_TOKEN"),
    ],
)
def test_accounts_come_and_go_beside_the_first_bot_and_have_their_own_address(
    home: Home, platform: str, key: str, variable: str
) -> None:
    home.environ = {variable: "1:first", "SLACK_APP_TOKEN": "xapp-1"}
    home.write("{}\n")
    (first,) = before = enabled_accounts(lambda: home.loaded, options_of(home), FakeClock())
    assert first.name == platform
    own = f"{{{key}: '2:work', extra: {{base_url: 'http://127.0.0.1:9/own'}}}}"
    home.write(f"platforms: {{{platform}: {{extra: {{accounts: {{work: {own}}}}}}}}}\n")
    accounts = renewed_accounts(before, lambda: home.loaded, options_of(home))
    assert [each.name for each in accounts] == [platform, f"{platform}:work"]
    assert accounts[0] is first
    assert accounts[1].places.section["base_url"] == "http://127.0.0.1:9/own"
    assert "base_url" not in first.places.section
    assert "extra" not in str(idle_settings(home.loaded))
    again = enabled_accounts(lambda: home.loaded, options_of(home), FakeClock())
    assert [each.name for each in again] == [each.name for each in accounts]
    home.write("{}\n")
    assert renewed_accounts(accounts, lambda: home.loaded, options_of(home)) == [first]


def test_mention_rules_and_prompts_follow_a_changed_file(home: Home) -> None:
    home.write("telegram: {channel_prompts: {'5': before}}\n")
    options = AppOptions(home=home.home, environ=home.environ, cwd=home.home.root)
    (account,) = enabled_accounts(lambda: home.loaded, options, FakeClock())
    adapter = account.make()
    assert isinstance(adapter, TelegramAdapter)
    assert account.channel_prompt("5", None) == "before"
    assert not account.reactions()
    home.write(
        "telegram: {channel_prompts: {'5': after}, require_mention: false, reactions: true}\n"
    )
    assert account.reactions()
    assert account.channel_prompt("5", None) == "after"
    assert adapter._rules().require_mention is False
    home.write("telegram: {require_mention: perhaps, channel_prompts: {'5': broken}}\n")
    assert account.channel_prompt("5", None) == "after", "what cannot be used changes nothing"


def test_an_agent_with_a_token_of_its_own_has_an_account_that_nobody_else_has(home: Home) -> None:
    for agent, secret in (("coder", "TELEGRAM_BOT_TOKEN=9:coder\n"), ("plain", "X_KEY=1\n")):
        own = home.home.agents_dir / agent
        own.mkdir(parents=True)
        (own / ".env").write_text(f"{secret}TELEGRAM_ALLOWED_USERS=5\n")
    home.write("agents: {coder: {}, plain: {}}\ntelegram: {require_mention: false}\n")
    options = AppOptions(home=home.home, environ=home.environ, cwd=home.home.root)
    general, own_bot = enabled_accounts(lambda: home.loaded, options, FakeClock())
    assert [(each.name, each.agent) for each in (general, own_bot)] == [
        ("telegram", ""),
        ("telegram:coder", "coder"),
    ]
    assert own_bot.make().account == "9"
    assert own_bot.places.variables["TELEGRAM_ALLOWED_USERS"] == "5"
    assert own_bot.places.section["require_mention"] is False
    (home.home.agents_dir / "coder" / ".env").unlink()
    renewed = renewed_accounts([general, own_bot], lambda: home.loaded, options)
    assert renewed == [general]


@pytest.mark.parametrize(
    "entry", ["{tolsets: []}", "{settings: {agent: {max_turns: many}}}", "{home: elsewhere}"]
)
def test_the_bot_of_a_broken_agent_stays_to_say_so(home: Home, entry: str) -> None:
    own = home.home.root / ("elsewhere" if "elsewhere" in entry else "agents/coder")
    own.mkdir(parents=True)
    (own / ".env").write_text("TELEGRAM_BOT_TOKEN=9:coder\nTELEGRAM_ALLOWED_USERS=5\n")
    home.write("agents: {coder: {home: elsewhere}}\n" if "home" in entry else "agents: {coder: {}}")
    options = options_of(home)
    before = enabled_accounts(lambda: home.loaded, options, FakeClock())
    assert [each.agent for each in before] == ["", "coder"]
    if "home" in entry:
        (own / ".env").unlink()
        own.rmdir()
    home.write(f"agents: {{coder: {entry}}}\n")
    general, bot = renewed_accounts(before, lambda: home.loaded, options)
    assert (bot.agent, bot.make().account) == ("coder", "9")
    assert bot.places.variables["TELEGRAM_ALLOWED_USERS"] == "5"
    assert general.make().account == "1"
    if "home" not in entry:
        after = enabled_accounts(lambda: home.loaded, options, FakeClock())
        assert [each.name for each in after] == ["telegram", "telegram:coder"]


def test_who_shares_the_home_of_an_agent_does_not_take_its_bot(home: Home) -> None:
    own = home.home.agents_dir / "coder"
    own.mkdir(parents=True)
    (own / ".env").write_text("TELEGRAM_BOT_TOKEN=9:coder\n")
    home.write("agents: {coder: {}, light: {home: coder, prompt: Brief.}}\n")
    accounts = enabled_accounts(lambda: home.loaded, options_of(home), FakeClock())
    assert [each.name for each in accounts] == ["telegram", "telegram:coder"]


@pytest.mark.parametrize(
    ("config", "of_main", "of_coder", "heard"),
    [
        ("", "TELEGRAM_ALLOW_ALL_USERS=true", "TELEGRAM_ALLOWED_USERS=5", "5"),
        ("", "TELEGRAM_ALLOW_ALL_USERS=true", "TELEGRAM_ALLOW_ALL_USERS=false", ""),
        ("", "TELEGRAM_ALLOWED_USERS=1,7", "TELEGRAM_ALLOWED_USERS=5", "5"),
        ("", "TELEGRAM_ALLOWED_USERS=1", "", ""),
        ("", "TELEGRAM_DM_POLICY=open", "", ""),
        ("", "GATEWAY_ALLOW_ALL_USERS=true", "TELEGRAM_ALLOWED_USERS=5", "5"),
        ("gateway: {allow_all_users: true}\n", "", "TELEGRAM_ALLOWED_USERS=5", "5"),
        ("telegram: {allow_all_users: true}\n", "", "TELEGRAM_ALLOWED_USERS=5", "5"),
        ("telegram: {allow_all_users: true}\n", "", "", "157"),
        ("", "GATEWAY_ALLOWED_USERS=7", "", "7"),
    ],
)
def test_who_may_talk_to_main_may_not_for_that_reason_talk_to_the_bot_of_an_agent(
    home: Home, config: str, of_main: str, of_coder: str, heard: str
) -> None:
    own = home.home.agents_dir / "coder"
    own.mkdir(parents=True)
    (own / ".env").write_text(f"TELEGRAM_BOT_TOKEN=9:coder\n{of_coder}\n")
    home.home.env_file.write_text(of_main)
    home.write(f"{config}agents: {{coder: {{}}}}\n")
    accounts = enabled_accounts(lambda: home.loaded, options_of(home), FakeClock())
    authorizer = Authorizer(
        access_settings(home.loaded, _access_places(accounts)),
        paired=lambda bot, sender: (bot, sender.id) in {("telegram", "3"), ("telegram:coder", "4")},
        account=lambda _platform, account: account,
    )

    def allowed(account: str) -> str:
        chat = Chat(id="1", kind=ChatKind.PRIVATE)
        people = [Sender(id=each) for each in "13457"]
        return "".join(
            each.id
            for each in people
            if authorizer.check_person("telegram", chat, each, account=account).allowed
        )

    everybody = heard == "157"
    assert allowed("coder") == ("13457" if everybody else "".join(sorted(f"4{heard}")))
    assert "3" in allowed(""), "whoever was paired with main's bot"


def test_an_agent_with_the_token_of_another_bot_is_named(home: Home) -> None:
    entry = "{settings: {platforms: {telegram: {token: '1:env'}}}}"
    home.write(f"agents: {{twin: {entry}, plain: {{}}}}\n")
    accounts = enabled_accounts(lambda: home.loaded, options_of(home), FakeClock())
    assert [each.name for each in accounts] == ["telegram", "telegram:twin"]
    (doubt,) = config_doubts(home.loaded, home.home)
    assert doubt.startswith(
        "telegram:twin has the same credential as telegram and does not connect"
    )
    with accounts[0].hold(), pytest.raises(Conflict, match="account telegram"), accounts[1].hold():
        pass
