"""Listing endpoints: agents as models, capabilities, toolsets and skills.

Every list shows only what the key may reach.
"""

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct

from hermes.entry.http.access import (
    AgentQuery,
    chosen_agent,
    reachable_agents,
    require_agent,
)
from hermes.entry.http.api.health import PLATFORM_NAME
from hermes.entry.http.endpoint import (
    Call,
    Endpoint,
    Operations,
    ServedAgent,
    Toolset,
)

operation = Operations("Catalog")
CREATED = 1_767_225_600
"""Agents have no birthday; clients want a number that stays the same."""
_FEATURES = {
    "chat_completions": "/v1/chat/completions",
    "responses": "/v1/responses",
    "runs": "/v1/runs",
    "run_events": "/v1/runs/{run_id}/events",
    "run_stop": "/v1/runs/{run_id}/stop",
    "run_steer": "/v1/runs/{run_id}/steer",
    "run_approval": "/v1/runs/{run_id}/approval",
    "sessions": "/api/sessions",
    "jobs": "/api/jobs",
    "metrics": "/metrics",
    "chat_completions_streaming": "/v1/chat/completions",
    "responses_streaming": "/v1/responses",
    "session_continuity": "/v1/chat/completions",
    "idempotency": "/v1/chat/completions",
}
"""A feature is there if its endpoint is."""


class ModelEntry(Struct, frozen=True, kw_only=True):
    """An agent, as clients of language models see it."""

    id: str
    object: Literal["model"] = "model"
    created: int = CREATED
    owned_by: str = "hermes"
    permission: list[Any] = []
    root: str
    parent: str | None = None


class ModelList(Struct, frozen=True, kw_only=True):
    """The agents that this key may run."""

    object: Literal["list"] = "list"
    data: list[ModelEntry]


class AuthNote(Struct, frozen=True, kw_only=True):
    """How to come in."""

    type: Literal["bearer"] = "bearer"
    required: bool = True


class RuntimeNote(Struct, frozen=True, kw_only=True):
    """Where the work is done."""

    mode: Literal["server_agent"] = "server_agent"
    tool_execution: Literal["server"] = "server"
    client_tools: bool = True


class Operation(Struct, frozen=True, kw_only=True):
    """Where an endpoint is."""

    method: str
    path: str


class ApiCapabilities(Struct, frozen=True, kw_only=True):
    """What this server can do."""

    object: Literal["hermes.api_server.capabilities"] = "hermes.api_server.capabilities"
    platform: str = PLATFORM_NAME
    version: str
    model: str | None
    """What a request without a model runs; null if this key may not run it."""
    auth: AuthNote = AuthNote()
    runtime: RuntimeNote = RuntimeNote()
    features: dict[str, bool]
    endpoints: dict[str, Operation]


class ToolsetList(Struct, frozen=True, kw_only=True):
    """The toolsets of an agent at this door."""

    object: Literal["list"] = "list"
    data: Sequence[Toolset]


class SkillList(Struct, frozen=True, kw_only=True):
    """The skills of an agent."""

    object: Literal["list"] = "list"
    data: list[dict[str, Any]]


@operation("GET /v1/models")
async def list_models(call: Call[None, None]) -> ModelList:
    """List models."""
    return ModelList(data=[_model(agent) for agent in reachable_agents(call)])


@operation("GET /v1/models/{model}", 404)
async def get_model(call: Call[None, None]) -> ModelEntry:
    """Read a model."""
    return _model(await require_agent(call, call.path["model"]))


@operation("GET /v1/toolsets", 404)
async def list_toolsets(call: Call[None, AgentQuery]) -> ToolsetList:
    """List toolsets."""
    return ToolsetList(data=call.context.toolsets((await chosen_agent(call)).agent_id))


@operation("GET /v1/skills", 404, redacts=True)
async def list_skills(call: Call[None, AgentQuery]) -> SkillList:
    """List skills."""
    skills = await call.context.skills((await chosen_agent(call)).agent_id)
    return SkillList(data=skills)


def capabilities_endpoint(others: Sequence[Endpoint]) -> Endpoint:
    """Return the endpoint that tells of `others` and of itself."""

    @operation("GET /v1/capabilities")
    async def capabilities(call: Call[None, None]) -> ApiCapabilities:
        """What this server can do."""
        default = next(iter(call.context.agents().values()))
        may = default.listed and call.caller.may_reach(default.agent_id)
        return ApiCapabilities(
            version=call.context.version,
            model=default.name if may else None,
            features=features,
            endpoints=endpoints,
        )

    listed = (*others, capabilities)
    endpoints = {each.name: Operation(method=each.method, path=each.path) for each in listed}
    paths = {each.path for each in others}
    features = {name: path in paths for name, path in _FEATURES.items()}
    return capabilities


def _model(agent: ServedAgent) -> ModelEntry:
    return ModelEntry(id=agent.name, root=agent.name)
