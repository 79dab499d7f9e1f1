"""Providers as data: protocol, endpoint, auth and a few quirks, one entry each.

Adding a provider that speaks one of the known protocols is one entry here, or
no code at all: any name under `providers:` in the configuration works too.
"""

from enum import StrEnum
from types import MappingProxyType
from typing import Final

from msgspec import Struct

Auth = str
"""`bearer`, `x-api-key`, `api-key` (Azure) or `none`."""


class ApiMode(StrEnum):
    """The wire protocol an endpoint speaks."""

    CHAT_COMPLETIONS = "chat_completions"
    RESPONSES = "responses"
    ANTHROPIC_MESSAGES = "anthropic_messages"


class Quirks(Struct, frozen=True, kw_only=True):
    """Where OpenAI-compatible servers differ from each other."""

    late_system: bool = False
    """Accepts a system message at the end; otherwise context goes into a user message."""
    output_limit_field: str = "max_tokens"
    effort: str = ""
    """How reasoning effort is asked for: `openai`, `openrouter`, `deepseek`, or not at all."""
    replay: str = ""
    """What of earlier reasoning goes back: `details`, `content`, or nothing."""
    session_field: str = ""
    """Body field that keeps the calls of a session on one cache."""
    usage_include: bool = False
    stream_usage: bool = True


class ProviderSpec(Struct, frozen=True, kw_only=True):
    """A provider that is known by name."""

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


GENERIC: Final = Quirks()
_OPENAI: Final = Quirks(
    late_system=True,
    output_limit_field="max_completion_tokens",
    effort="openai",
    session_field="prompt_cache_key",
)
_HOSTED: Final = Quirks(late_system=True)
_EFFORT: Final = Quirks(late_system=True, effort="openai")
_THINKING: Final = Quirks(late_system=True, effort="deepseek", replay="content")


def _hosted(
    name: str, base_url: str, *key_env: str, quirks: Quirks = _HOSTED, key_url: str = ""
) -> ProviderSpec:
    stem = key_env[0].removesuffix("_API_KEY").removesuffix("_TOKEN")
    return ProviderSpec(
        name=name,
        base_url=base_url,
        key_env=key_env,
        base_url_env=f"{stem}_BASE_URL",
        quirks=quirks,
        key_url=key_url,
    )


def _local(name: str, base_url: str, *key_env: str, base_url_env: str) -> ProviderSpec:
    return ProviderSpec(
        name=name, base_url=base_url, key_env=key_env, base_url_env=base_url_env, local=True
    )


_TABLE: Final = (
    _hosted(
        "openrouter",
        "https://openrouter.ai/api/v1",
        "OPENROUTER_API_KEY",
        quirks=Quirks(
            late_system=True,
            effort="openrouter",
            replay="details",
            session_field="session_id",
            usage_include=True,
        ),
        key_url="https://openrouter.ai/keys",
    ),
    ProviderSpec(
        name="anthropic",
        base_url="https://api.anthropic.com",
        key_env=("ANTHROPIC_API_KEY", "ANTHROPIC_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
        base_url_env="ANTHROPIC_BASE_URL",
        api_mode=ApiMode.ANTHROPIC_MESSAGES,
        auth="x-api-key",
        key_url="https://console.anthropic.com/settings/keys",
    ),
    _hosted(
        "openai",
        "https://api.openai.com/v1",
        "OPENAI_API_KEY",
        quirks=_OPENAI,
        key_url="https://platform.openai.com/api-keys",
    ),
    _hosted(
        "gemini",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        "GEMINI_API_KEY",
        "GOOGLE_API_KEY",
        quirks=Quirks(effort="openai"),
        key_url="https://aistudio.google.com/apikey",
    ),
    _hosted(
        "deepseek",
        "https://api.deepseek.com/v1",
        "DEEPSEEK_API_KEY",
        quirks=_THINKING,
        key_url="https://platform.deepseek.com/api_keys",
    ),
    _hosted("xai", "https://api.x.ai/v1", "XAI_API_KEY", quirks=_EFFORT),
    _hosted("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY", quirks=_EFFORT),
    _hosted("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY", quirks=GENERIC),
    _hosted("nvidia", "https://integrate.api.nvidia.com/v1", "NVIDIA_API_KEY", quirks=GENERIC),
    _hosted("zai", "https://api.z.ai/api/paas/v4", "GLM_API_KEY", "ZAI_API_KEY", "Z_AI_API_KEY"),
    _hosted(
        "kimi",
        "https://api.moonshot.ai/v1",
        "KIMI_API_KEY",
        "MOONSHOT_API_KEY",
        quirks=Quirks(late_system=True, replay="content"),
    ),
    _hosted("kimi-cn", "https://api.moonshot.cn/v1", "KIMI_CN_API_KEY"),
    _hosted("minimax", "https://api.minimax.io/v1", "MINIMAX_API_KEY", quirks=GENERIC),
    _hosted("minimax-cn", "https://api.minimaxi.com/v1", "MINIMAX_CN_API_KEY", quirks=GENERIC),
    _hosted(
        "alibaba",
        "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        "DASHSCOPE_API_KEY",
    ),
    _hosted("huggingface", "https://router.huggingface.co/v1", "HF_TOKEN", quirks=GENERIC),
    _hosted("fireworks", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
    _hosted("together", "https://api.together.xyz/v1", "TOGETHER_API_KEY", quirks=GENERIC),
    _hosted("deepinfra", "https://api.deepinfra.com/v1/openai", "DEEPINFRA_API_KEY"),
    _hosted("novita", "https://api.novita.ai/openai/v1", "NOVITA_API_KEY"),
    _hosted("cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
    _hosted("upstage", "https://api.upstage.ai/v1", "UPSTAGE_API_KEY"),
    _hosted("stepfun", "https://api.stepfun.ai/v1", "STEPFUN_API_KEY"),
    _hosted("xiaomi", "https://api.xiaomimimo.com/v1", "XIAOMI_API_KEY"),
    _hosted("gmi", "https://api.gmi-serving.com/v1", "GMI_API_KEY"),
    _hosted("arcee", "https://api.arcee.ai/api/v1", "ARCEEAI_API_KEY"),
    _hosted("kilocode", "https://api.kilo.ai/api/gateway", "KILOCODE_API_KEY"),
    _hosted("opencode-zen", "https://opencode.ai/zen/v1", "OPENCODE_ZEN_API_KEY"),
    _hosted("opencode-go", "https://opencode.ai/zen/go/v1", "OPENCODE_GO_API_KEY"),
    _hosted("ollama-cloud", "https://ollama.com/v1", "OLLAMA_API_KEY"),
    ProviderSpec(
        name="azure-foundry",
        base_url="",
        key_env=("AZURE_FOUNDRY_API_KEY",),
        base_url_env="AZURE_FOUNDRY_BASE_URL",
        auth="api-key",
        quirks=_OPENAI,
    ),
    _local("ollama", "http://127.0.0.1:11434/v1", base_url_env="OLLAMA_BASE_URL"),
    _local("lmstudio", "http://127.0.0.1:1234/v1", "LM_API_KEY", base_url_env="LM_BASE_URL"),
    _local("vllm", "http://127.0.0.1:8000/v1", "VLLM_API_KEY", base_url_env="VLLM_BASE_URL"),
    _local("llama.cpp", "http://127.0.0.1:8080/v1", "LLAMA_API_KEY", base_url_env="LLAMA_BASE_URL"),
    ProviderSpec(
        name="custom", base_url="", key_env=("OPENAI_API_KEY",), base_url_env="OPENAI_BASE_URL"
    ),
)

PROVIDERS: Final = MappingProxyType({spec.name: spec for spec in _TABLE})

_SPELLINGS: Final = {
    "anthropic": "claude",
    "gemini": "google google-gemini",
    "xai": "grok x-ai",
    "zai": "glm z-ai z.ai",
    "kimi": "moonshot moonshotai",
    "alibaba": "qwen dashscope",
    "huggingface": "hf",
    "lmstudio": "lm-studio lm_studio",
    "llama.cpp": "llamacpp llama-cpp llama_cpp",
    "azure-foundry": "azure",
    "custom": "local",
}
_ALIASES: Final = {alias: name for name, also in _SPELLINGS.items() for alias in also.split()}


def canonical_name(name: str) -> str:
    """Return the built-in name behind a spelling that people use."""
    lowered = name.strip().lower()
    return _ALIASES.get(lowered, lowered)
