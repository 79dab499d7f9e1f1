"""Providers as data: protocol, endpoint, auth and a few quirks, one row of `providers.csv` each.

Adding a provider that speaks one of the known protocols is one row there, or
none at all: any name under `providers:` in the configuration works too.
"""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from hermes.domain.turn import JSON_OBJECT, JSON_SCHEMA

Auth = str
"""`bearer`, `x-api-key`, `api-key` (Azure) or `none`."""


class ApiMode(StrEnum):
    CHAT_COMPLETIONS = "chat_completions"
    RESPONSES = "responses"
    ANTHROPIC_MESSAGES = "anthropic_messages"


_CHAT = (
    *("temperature", "top_p", "stop", "presence_penalty", "frequency_penalty", "seed"),
    *("min_p", "top_k", "repetition_penalty", "prediction"),
    *("logit_bias", "logprobs", "top_logprobs", "service_tier", "verbosity", "parallel_tool_calls"),
)
TAKES: Final[Mapping[ApiMode, Mapping[str, str]]] = {
    ApiMode.CHAT_COMPLETIONS: {
        **{name: name for name in _CHAT},
        JSON_OBJECT: "response_format",
        JSON_SCHEMA: "response_format",
    },
    ApiMode.RESPONSES: {
        **{name: name for name in ("temperature", "top_p", "top_logprobs", "service_tier")},
        "parallel_tool_calls": "parallel_tool_calls",
        "logprobs": "include",
        "verbosity": "text",
        JSON_OBJECT: "text",
        JSON_SCHEMA: "text",
    },
    ApiMode.ANTHROPIC_MESSAGES: {
        **{name: name for name in ("temperature", "top_p", "top_k", "service_tier")},
        "stop": "stop_sequences",
        "parallel_tool_calls": "tool_choice",
        JSON_SCHEMA: "output_config",
    },
}
"""What each protocol takes of `domain.turn.ASKABLE`, and in which field."""
ANTHROPIC_TIERS: Final = {"auto": "auto", "priority": "auto", "default": "standard_only"}
"""`service_tier` as OpenAI and as Anthropic spell it; Anthropic has no others."""


class Quirks(Struct, frozen=True, kw_only=True):
    """Where OpenAI-compatible servers differ from each other."""

    output_limit_field: str = "max_tokens"
    effort: str = ""
    """How reasoning effort is asked for: `openai`, `openrouter`, `deepseek`; empty: as `openai`,
    but side calls do not switch it off."""
    replay: str = ""
    """What of earlier reasoning goes back: `details`, `content`, or nothing."""
    session_field: str = ""
    """Body field that keeps the calls of a session on one cache."""
    usage_include: bool = False
    stream_usage: bool = True
    lacks: frozenset[str] = frozenset()
    """What others of this protocol take of the sampling, and this server refuses."""
    repetition_field: str = "repetition_penalty"


class ProviderSpec(Struct, frozen=True, kw_only=True):
    name: str
    base_url: str
    key_env: tuple[str, ...] = ()
    base_url_env: str = ""
    api_mode: ApiMode = ApiMode.CHAT_COMPLETIONS
    auth: Auth = "bearer"
    local: bool = False
    """Runs on the user's machine: no key needed, slow first byte expected."""
    key_url: str = ""
    """Where a person gets a key."""
    quirks: Quirks = Quirks()
    models: tuple[str, ...] = ()
    """How the catalogue's names of its own models begin, best known first."""
    aliases: tuple[str, ...] = ()
    """Other names that people use for it."""

    def makes(self, model: str) -> bool:
        """Whether the model's name is of a family that this provider makes."""
        return model.lower().startswith(tuple(name.partition("-")[0] for name in self.models))


GENERIC: Final = Quirks()
_QUIRKS: Final = {
    "": GENERIC,
    "openai": Quirks(
        output_limit_field="max_completion_tokens",
        effort="openai",
        session_field="prompt_cache_key",
        lacks=frozenset({"min_p", "top_k", "repetition_penalty"}),
    ),
    "openrouter": Quirks(
        effort="openrouter",
        replay="details",
        session_field="session_id",
        usage_include=True,
    ),
    "hosted": GENERIC,
    "effort": Quirks(effort="openai"),
    "gemini": Quirks(effort="openai"),
    "kimi": Quirks(replay="content"),
    "llama": Quirks(repetition_field="repeat_penalty"),
    "thinking": Quirks(effort="deepseek", replay="content"),
}


def _spec(row: str) -> ProviderSpec:
    cells = (*row.split(","), *[""] * 7)[:9]
    name, address, keys, quirks, page, mode, auth, models, aliases = cells
    key_env = tuple(keys.split())
    stem = key_env[0].removesuffix("_API_KEY").removesuffix("_TOKEN") if keys else name.upper()
    return ProviderSpec(
        name=name,
        base_url=address,
        key_env=key_env,
        base_url_env=f"{stem}_BASE_URL",
        api_mode=ApiMode(mode or ApiMode.CHAT_COMPLETIONS),
        auth=auth or "bearer",
        local=page == "here",
        key_url="" if page == "here" else page,
        quirks=_QUIRKS[quirks],
        models=tuple(models.split()),
        aliases=tuple(aliases.split()),
    )


_ROWS: Final = Path(__file__).with_name("providers.csv").read_text("utf-8").splitlines()[1:]
PROVIDERS: Final = MappingProxyType({spec.name: spec for spec in map(_spec, _ROWS)})

_ALIASES: Final = {alias: spec.name for spec in PROVIDERS.values() for alias in spec.aliases}


def canonical_name(name: str) -> str:
    """Return the built-in name of a provider that may be given by another name."""
    lowered = name.strip().lower()
    return _ALIASES.get(lowered, lowered)
