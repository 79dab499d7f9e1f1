"""AgentRegistry: the agents of this process, by id, as the configuration has them now.

An agent that cannot work (its configuration is wrong, its home is missing) is kept with the
reason: asking for it raises `AgentUnavailable`, and all others go on. A changed configuration
replaces what has changed and leaves everything else, with its model clients, as it is. A turn
that runs keeps the profile it began with.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace

from hermes.agent.mcp.servers import McpServers
from hermes.app.options import AppOptions
from hermes.app.settings import agent_profile
from hermes.config.agents import OF_MODELS, AgentConfig, home_of, read_agent
from hermes.config.atomic import file_stamp
from hermes.config.loader import LoadedConfig
from hermes.config.paths import HermesHome
from hermes.domain.errors import AgentUnavailable, HermesError
from hermes.domain.profile import DEFAULT_AGENT, AgentProfile, current_profile
from hermes.domain.settings import Settings
from hermes.domain.settings.live import LiveSettings
from hermes.models.local.files import PROVIDER
from hermes.models.routes import ModelSources, main_target, resolve_route

log = logging.getLogger(__name__)


class AgentRegistry(Mapping[str, AgentProfile]):
    """The agents that can work; `problems` has the others."""

    def __init__(self, loaded: LoadedConfig, options: AppOptions) -> None:
        self.problems: dict[str, HermesError] = {}
        """Agent -> why it cannot work."""
        self._options = options
        self._loaded = loaded
        self._configs: dict[str, AgentConfig] = {}
        self._profiles: dict[str, AgentProfile] = {}
        self._served: dict[str, AgentProfile | None] = {}
        self.update(loaded, loaded.config)

    @property
    def served(self) -> Mapping[str, AgentProfile | None]:
        """All agents there are; None for those that cannot work. Another one after a change."""
        return self._served

    def __getitem__(self, agent_id: str) -> AgentProfile:
        if agent_id in self.problems:
            problem = self.problems[agent_id]
            raise AgentUnavailable(agent_id, problem.message, problem.public)
        profile = self._profiles[agent_id]
        if agent_id != DEFAULT_AGENT and not profile.home.is_dir():
            missing = f"Its home {profile.home} is missing."
            raise AgentUnavailable(agent_id, missing, "Its home is missing.")
        return profile

    def __contains__(self, agent_id: object) -> bool:
        return agent_id in self._profiles

    def __iter__(self) -> Iterator[str]:
        return iter(self._profiles)

    def __len__(self) -> int:
        return len(self._profiles)

    def update(self, loaded: LoadedConfig, general: Settings) -> None:
        """Take over a changed configuration, of which `general` is in force.

        Agents that have not changed stay as they are.
        """
        before, self._loaded = self._loaded, loaded
        alike = loaded.variables == before.variables and loaded.templates == before.templates
        alike = alike and all(
            getattr(loaded.config, key) == getattr(before.config, key) for key in OF_MODELS
        )
        problems: dict[str, HermesError] = {}
        self._homes: set[HermesHome] = set()
        configs: dict[str, AgentConfig] = {}
        profiles: dict[str, AgentProfile] = {}
        for agent_id in {DEFAULT_AGENT: None, **loaded.config.agents}:
            try:
                config = self._config(agent_id, alike=alike)
                profile = agent_profile(loaded, self._options, config, general)
            except HermesError as error:
                problems[agent_id] = error
                if self._served:  # at first whoever starts the process tells it
                    log.error("the agent %s cannot work: %s", agent_id, error.message)
            else:
                configs[agent_id] = config
                known = self._profiles.get(agent_id)
                profiles[agent_id] = known if known is not None and known == profile else profile
        self.problems, self._configs, self._profiles = problems, configs, profiles
        self._served = {each: profiles.get(each) for each in (*profiles, *problems)}

    def _config(self, agent_id: str, *, alike: bool) -> AgentConfig:
        home = home_of(agent_id, self._loaded.config.agents, self._options.home)
        if home != self._options.home:
            self._homes.add(home)
        found = read_agent(agent_id, self._loaded, self._options.home)
        found.home.ensure()
        known = self._configs.get(agent_id)
        if known is None or not alike or replace(known, scope=found.scope) != found:
            return found
        return known

    def of_turn(self, agent_id: str) -> AgentProfile:
        """Return the profile that the running turn began with, if it is of this agent."""
        profile = current_profile()
        return profile if profile is not None and profile.id == agent_id else self[agent_id]

    def warnings(self) -> list[str]:
        return [f"the agent {each} cannot work: {why.whole}" for each, why in self.problems.items()]

    def stamps(self) -> object:
        """Return something that differs once a home or its `.env` has changed."""
        return [(file_stamp(home.env_file), home.root.is_dir()) for home in self._homes]


def agent_problems(loaded: LoadedConfig, home: HermesHome) -> dict[str, str]:
    """Return the agents that are refused, and why."""
    return _troubles(loaded, home, lambda _agent: None)


def model_problems(loaded: LoadedConfig, home: HermesHome) -> dict[str, str]:
    """Return the agents that can do nothing, and why: they are refused, or their model is."""
    return _troubles(loaded, home, partial(_check_model, loaded))


def _troubles(
    loaded: LoadedConfig, home: HermesHome, check: Callable[[AgentConfig], None]
) -> dict[str, str]:
    found = {}
    for agent_id in {DEFAULT_AGENT: None, **loaded.config.agents}:
        try:
            check(read_agent(agent_id, loaded, home))
        except HermesError as error:
            found[agent_id] = error.whole
    return found


def _check_model(loaded: LoadedConfig, agent: AgentConfig) -> None:
    """Raise `ConfigError` if the model that is chosen cannot be called, for want of a key say."""
    scope = agent.scope
    settings = loaded.config if scope is None else scope.settings(loaded.config)
    choice = settings.model
    if choice.model and choice.provider != PROVIDER:
        sources = ModelSources(
            settings=settings,
            secret=loaded.variable if scope is None else scope.variable,
            env_file=None if scope is None else scope.env_file,
        )
        resolve_route(main_target(settings, choice.provider, choice.model), sources)


class AgentServers:
    """The MCP servers of agents: those of `main`, and an agent's own if its home or they differ.

    A server remembers what it was told, signs in and asks the model for somebody: that is one
    agent. Its secrets are that agent's, also where the general settings refer to them.
    """

    def __init__(
        self,
        settings: LiveSettings,
        home: HermesHome,
        redact: Callable[[str], str],
        sample: Callable[[AgentProfile], Callable[..., Any]],
    ) -> None:
        self._settings = settings
        self._home = home
        self._redact = redact
        self._sample = sample
        self._opened: dict[str, McpServers] = {}
        self._profiles: dict[str, AgentProfile] = {}
        """Whose they are, as it is now; what has changed for it is followed."""

    def of(self, profile: AgentProfile) -> McpServers:
        general, scope = self._settings.general, profile.scope
        apart = profile.home != self._home.root
        if scope is not None and not apart:
            apart = scope.settings(general()).mcp_servers is not general().mcp_servers
        whose = profile.id if apart else DEFAULT_AGENT
        if apart or profile.id == whose or whose not in self._profiles:
            self._profiles[whose] = profile
        if whose not in self._opened:
            self._opened[whose] = McpServers(
                partial(self._settings_of, whose, apart=apart),
                profile.home / "mcp-tokens",
                redact=self._redact,
                sample=partial(self._sampled, whose),
            )
        return self._opened[whose]

    def _settings_of(self, whose: str, *, apart: bool) -> Settings:
        general, scope = self._settings.general(), self._profiles[whose].scope
        return scope.settings(general) if apart and scope is not None else general

    async def _sampled(self, whose: str, *asked: Any) -> Any:
        return await self._sample(self._profiles[whose])(*asked)

    async def keep(self, agents: Collection[str]) -> None:
        """Leave the servers of all other agents: they were removed."""
        for gone in [each for each in self._opened if each not in {DEFAULT_AGENT, *agents}]:
            await self._opened.pop(gone).close()
            del self._profiles[gone]

    async def close(self) -> None:
        for servers in self._opened.values():
            await servers.close()
