"""AgentRegistry: agents of the configuration, what they have, and what is wrong with them."""

from pathlib import Path

import pytest

from hermes.app.agents import AgentRegistry, agent_problems, model_problems
from hermes.app.api_door import AgentCards
from hermes.app.build import open_app
from hermes.app.options import AppOptions
from hermes.app.settings import environment_settings
from hermes.config.loader import LoadedConfig, load_config
from hermes.config.paths import HermesHome
from hermes.domain.errors import AgentUnavailable
from hermes.entry.http.settings import HttpSettings, ModelAlias

GENERAL = """
model: {model: general, provider: openai, api_key: "${OPENAI_API_KEY}", context_length: 9}
providers: {mine: {base_url: "http://127.0.0.1:1/v1", api_key: "${MINE_KEY}", model: own}}
agent: {max_turns: 7}
"""


class Site:
    def __init__(self, root: Path) -> None:
        self.home = HermesHome(root=root)
        self.environ = {"HOME": str(root), "A_TOKEN": "token-of-the-process", "LANG": "C"}
        self.options = AppOptions(
            home=self.home, environ=self.environ, cwd=root, platform="gateway"
        )
        self.home.env_file.write_text("OPENAI_API_KEY=key-of-main\nMINE_KEY=mine-of-main\n")

    def agents(self, text: str) -> AgentRegistry:
        self.home.config_file.write_text(GENERAL + text)
        return AgentRegistry(self.load(), self.options)

    def load(self) -> LoadedConfig:
        return load_config(self.home, self.environ, managed=self.home.root / "none")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_without_agents_there_is_main_and_nothing_is_made(site: Site) -> None:
    agents = site.agents("")
    assert list(agents) == ["main"]
    main = agents["main"]
    assert (main.home, main.workspace, main.scope) == (site.home.root, site.home.root, None)
    assert (main.model, main.provider, main.own_toolsets) == ("general", "openai", False)
    assert sorted(path.name for path in site.home.root.iterdir()) == [".env", "config.yaml"]


def test_an_agent_has_its_settings_over_the_general_ones_and_only_its_own_secrets(
    site: Site,
) -> None:
    own = site.home.agents_dir / "a"
    own.mkdir(parents=True)
    (own / ".env").write_text("OPENAI_API_KEY=key-of-a\n")
    agents = site.agents(
        "agents:\n  a: {settings: {agent: {reasoning_effort: low}}, model: other}\n"
        "  b: {provider: mine, secrets: [MINE_KEY], expose: false, workspace: files}\n"
        "  c: {home: main, prompt: Hi., toolsets: [web]}\n  d: {home: a}\n"
    )
    general = site.load().config
    a, b, c, d = (agents[name] for name in "abcd")
    assert a.scope is not None
    assert b.scope is not None
    laid = a.scope.settings(general)
    assert (laid.agent.max_turns, laid.agent.reasoning_effort) == (7, "low")
    assert (laid.model.model, laid.model.provider, laid.model.api_key) == (
        "other",
        "openai",
        "key-of-a",
    )
    assert laid.model.context_length is None
    assert a.scope.settings(general) is laid
    assert laid.providers["mine"].api_key == ""
    assert a.scope.variable("MINE_KEY") is None
    assert a.scope.variable("A_TOKEN") is None
    assert a.scope.variable("LANG") == "C"
    assert (b.provider, b.exposed) == ("mine", False)
    assert b.workspace == site.home.agents_dir / "b" / "files"
    assert b.scope.settings(general).providers["mine"].api_key == "mine-of-main"
    assert b.scope.settings(general).model.api_key == ""
    assert (c.home, c.prompt, c.toolsets, c.scope) == (site.home.root, "Hi.", ("web",), None)
    assert (d.home, d.model) == (own, "general")
    assert "A_TOKEN" not in environment_settings(site.load(), site.options, a).base_env
    assert "A_TOKEN" in environment_settings(site.load(), site.options, c).base_env


def test_a_key_that_main_has_no_more_goes_to_nobody_else(site: Site) -> None:
    own = site.home.agents_dir / "a"
    own.mkdir(parents=True)
    (own / ".env").write_text("OPENAI_API_KEY=key-of-a\n")
    site.agents("agents: {a: {model: other}, b: {model: other}}\n")
    in_force = site.load().config  # what a running gateway keeps until a restart
    site.home.env_file.write_text("")
    agents = AgentRegistry(site.load(), site.options)
    a, b = agents["a"].scope, agents["b"].scope
    assert a is not None
    assert b is not None
    assert a.settings(in_force).model.api_key == "key-of-a"
    assert b.settings(in_force).model.api_key == ""
    assert b.settings(in_force).providers["mine"].api_key == ""


def test_a_key_whose_line_is_gone_goes_to_no_agent(site: Site) -> None:
    agents = site.agents("agents: {a: {}, b: {home: main, model: other}}\n")
    in_force = site.load().config  # what the running process keeps until a restart
    text = site.home.config_file.read_text()
    site.home.config_file.write_text(text.replace(', api_key: "${OPENAI_API_KEY}"', ""))
    agents.update(site.load(), in_force)
    a, b = agents["a"].scope, agents["b"].scope
    assert a is not None
    assert b is not None
    assert in_force.model.api_key == "key-of-main"
    assert a.settings(in_force).model.api_key == ""
    assert b.settings(in_force).model.api_key == "key-of-main", "its home is that of main"


def test_an_agent_whose_model_has_no_key_is_named_with_the_place_where_it_belongs(
    site: Site,
) -> None:
    site.agents("agents: {a: {}, b: {secrets: [OPENAI_API_KEY]}, c: {home: nowhere}}\n")
    assert model_problems(site.load(), site.home).keys() == {"a", "c"}
    problem = model_problems(site.load(), site.home)["a"]
    assert "OPENAI_API_KEY is not set" in problem
    assert str(site.home.agents_dir / "a" / ".env") in problem
    assert "Make that directory" in agent_problems(site.load(), site.home)["c"]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("{home: not/there}", "is missing"),
        ("{tolsets: []}", "did you mean `toolsets`"),
        ("{settings: {agent: {max_turns: many}}}", "agent.max_turns should be a whole number"),
        ("{settings: {agnt: {}}}", "agnt is not a known key"),
        ("{settings: {routes: []}}", "cannot have `routes` for itself"),
        ('{model: {base_url: "${NOT_MINE}"}}', "refers to NOT_MINE"),
        ("[1]", "cannot be read"),
        ("{home: bad}", "shares a home in a circle"),
    ],
)
def test_an_agent_that_cannot_work_is_refused_and_the_others_go_on(
    site: Site, entry: str, said: str
) -> None:
    agents = site.agents(f"agents:\n  bad: {entry}\n  good: {{}}\n  Bad Name: {{}}\n")
    assert list(agents) == ["main", "good"]
    with pytest.raises(AgentUnavailable) as refused:
        agents["bad"]
    assert said in refused.value.message
    assert str(site.home.root) not in refused.value.public
    assert "bad" not in agents
    assert agents.problems["Bad Name"].message.startswith("`Bad Name` cannot be the id of an agent")
    (site.home.agents_dir / "good").rmdir()
    with pytest.raises(AgentUnavailable, match="is missing"):
        agents["good"]


def test_a_changed_configuration_replaces_what_has_changed_and_keeps_the_rest(site: Site) -> None:
    agents = site.agents("agents: {a: {}, b: {model: one}, c: {}}\n")
    before, general = dict(agents), site.load().config
    stamps = agents.stamps()
    (site.home.agents_dir / "c" / ".env").write_text("X_KEY=12345678\n")
    assert agents.stamps() != stamps
    site.home.config_file.write_text(GENERAL + "agents: {a: {}, b: {model: two}, c: {}, d: {}}\n")
    agents.update(site.load(), general)
    assert list(agents) == ["main", "a", "b", "c", "d"]
    assert agents["a"] is before["a"]
    assert agents["main"] is before["main"]
    assert (before["b"].model, agents["b"].model) == ("one", "two")
    assert "X_KEY" in agents["c"].secret_names
    site.home.config_file.write_text(GENERAL)
    agents.update(site.load(), general)
    assert list(agents) == ["main"]


async def test_the_api_names_the_default_agent_also_if_it_is_broken_and_no_hidden_one(
    site: Site,
) -> None:
    agents = "agents: {hidden: {expose: false}, broken: {home: nowhere}, open: {}}\n"
    routes = {
        "fast": ModelAlias(model="m", agent="hidden"),
        "gone": ModelAlias(model="m", agent="gone"),
        "good": ModelAlias(model="m", agent="hermes/open"),
        "usual": ModelAlias(model="m"),
    }
    for default, offered in (
        ("broken", {"hermes", "main", "open", "good", "usual"}),
        ("nobody", {"hermes", "main", "open", "good"}),
        ("hidden", {"main", "open", "good"}),
    ):
        site.home.config_file.write_text(f"{GENERAL}{agents}default_agent: {default}\n")
        async with open_app(site.options) as app:
            cards = AgentCards(app, HttpSettings(model_routes=routes))()
            listed = {name for name, each in cards.items() if each.listed}
            assert listed - {"hermes-agent"} >= offered
            assert not {"fast", "gone", "hidden"} & cards.keys()
            assert cards["good"].agent_id == "open"
            assert ("hermes" in listed) == (default != "hidden")


@pytest.mark.parametrize(
    ("model", "env", "wrong"),
    [
        ('base_url: "http://127.0.0.1:1/v1", api_key: "${M_KEY}"', "", True),
        ('base_url: "http://127.0.0.1:1/v1", api_key: "${M_KEY}"', "M_KEY=own\n", False),
        ('base_url: "http://127.0.0.1:1/v1", api_key: "${M_KEY}"', "OPENAI_API_KEY=own\n", False),
        ('base_url: "http://127.0.0.1:1/v1"', "", False),
        ("provider: far", "", True),
        ("provider: far", "M_KEY=own\n", False),
    ],
)
def test_an_agent_without_the_key_of_the_general_model_is_refused(
    site: Site, model: str, env: str, wrong: bool
) -> None:
    far = '{base_url: "http://127.0.0.1:1/v1", api_key: "${M_KEY}"}'
    site.home.env_file.write_text("M_KEY=key-of-main\n")
    (site.home.agents_dir / "a").mkdir(parents=True)
    (site.home.agents_dir / "a" / ".env").write_text(env)
    site.home.config_file.write_text(
        f"model: {{model: m, {model}}}\nproviders: {{far: {far}}}\n"
        "agents: {a: {}, light: {home: main}, own: {model: {model: x, base_url: 'http://h/v1'}}}\n"
    )
    problems = agent_problems(site.load(), site.home)
    assert list(problems) == (["a"] if wrong else [])
    assert not wrong or "whose key is M_KEY, which this agent does not have" in problems["a"]
