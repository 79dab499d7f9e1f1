"""From names in the configuration to routes, and errors that say what to do."""

import pytest

from hermes.domain.errors import ConfigError
from hermes.domain.settings import Settings
from hermes.domain.settings.models import ApiModeName, ModelChoice, ModelTimeouts, Provider
from hermes.models.encode_common import wire_call
from hermes.models.providers import PROVIDERS, ApiMode
from hermes.models.routes import ModelRoute, ModelSources, ModelTarget, main_target, resolve_route


def resolve(
    target: ModelTarget,
    secrets: dict[str, str] | None = None,
    **providers: Provider,
) -> ModelRoute:
    settings = Settings(providers=providers)
    return resolve_route(target, ModelSources(secret=(secrets or {}).get, settings=settings))


def test_openrouter_model_ids_pass_unchanged() -> None:
    target = ModelTarget(provider="openrouter", model="anthropic/claude-sonnet-4")
    route = resolve(target, {"OPENROUTER_API_KEY": "k"})
    assert route.model == "anthropic/claude-sonnet-4"
    assert route.base_url == "https://openrouter.ai/api/v1"
    assert route.api_mode is ApiMode.CHAT_COMPLETIONS
    assert [key.secret for key in route.keys] == ["k"]


@pytest.mark.parametrize(
    ("address", "called"),
    [
        ("http://h/v1?api-version=1", "http://h/v1/chat/completions?api-version=1"),
        ("http://h/v1/#part", "http://h/v1/chat/completions"),
        ("http://h/für%20a b/v1?q=ü#x", "http://h/f%C3%BCr%20a%20b/v1/chat/completions?q=%C3%BC"),
        ("http://[::1]:80/v1/", "http://[::1]:80/v1/chat/completions"),
    ],
)
def test_the_query_of_an_address_goes_with_every_call(address: str, called: str) -> None:
    route = resolve(ModelTarget(provider="custom", model="m", base_url=address))
    call = wire_call(route, f"{route.base_url}/chat/completions", {"stream": False})
    assert call.url == called


def test_a_missing_key_names_the_secret_and_the_command() -> None:
    with pytest.raises(ConfigError) as error:
        resolve(ModelTarget(provider="openrouter", model="m"))
    assert "OPENROUTER_API_KEY" in error.value.message
    assert "hermes config set OPENROUTER_API_KEY" in error.value.hint


def test_an_unknown_provider_suggests_names() -> None:
    with pytest.raises(ConfigError) as error:
        resolve(ModelTarget(provider="openruter", model="m"))
    assert "`openrouter`" in error.value.hint


def test_no_model_is_an_error_with_a_next_step() -> None:
    with pytest.raises(ConfigError) as error:
        resolve(ModelTarget(model=""))
    assert "hermes model" in error.value.hint


@pytest.mark.parametrize("name", ["ollama", "lmstudio", "vllm", "llama.cpp"])
def test_local_servers_need_no_key_and_get_more_patience(name: str) -> None:
    route = resolve(ModelTarget(provider=name, model="m"))
    assert route.keys == ()
    assert route.local
    assert route.timeouts.first_byte > ModelTimeouts().first_byte


@pytest.mark.parametrize("name", sorted(PROVIDERS))
def test_every_built_in_provider_resolves_with_its_key_and_an_address(name: str) -> None:
    spec = PROVIDERS[name]
    secrets = dict.fromkeys([*spec.key_env, spec.base_url_env], "https://example.invalid/v1")
    route = resolve(ModelTarget(provider=name, model="m"), secrets)
    assert route.provider == name
    assert route.base_url.startswith("http")


def test_named_entries_of_the_configuration_are_providers() -> None:
    entry = Provider(
        base_url="https://llm.example.org/v1/",
        key_env="TEAM_KEY",
        context_length=32_000,
        extra_body={"top_k": 1},
        extra_headers={"x-team": "a"},
    )
    target = ModelTarget(provider="team", model="house-model")
    route = resolve(target, {"TEAM_KEY": "t"}, team=entry)
    assert route.base_url == "https://llm.example.org/v1"
    assert route.keys[0].secret == "t"
    assert route.info.context_window == 32_000
    assert (route.extra_body, route.headers) == ({"top_k": 1}, {"x-team": "a"})


def test_a_named_entry_whose_key_is_missing_says_which() -> None:
    entry = Provider(base_url="https://llm.example.org/v1", key_env="TEAM_KEY")
    with pytest.raises(ConfigError, match="TEAM_KEY"):
        resolve(ModelTarget(provider="team", model="m"), {}, team=entry)


def test_a_key_is_never_sent_to_another_host_than_its_own() -> None:
    target = ModelTarget(provider="openrouter", model="m", base_url="http://127.0.0.1:9/v1")
    route = resolve(target, {"OPENROUTER_API_KEY": "secret"})
    assert route.keys == ()


def test_further_keys_are_found_by_number() -> None:
    secrets = {"OPENAI_API_KEY": "a", "OPENAI_API_KEY_2": "b", "OPENAI_API_KEY_4": "d"}
    route = resolve(ModelTarget(provider="openai", model="gpt-5"), secrets)
    assert [key.secret for key in route.keys] == ["a", "b"]


def test_keys_do_not_show_when_a_route_is_printed() -> None:
    route = resolve(ModelTarget(provider="openai", model="gpt-5"), {"OPENAI_API_KEY": "hush"})
    assert "hush" not in repr(route)


@pytest.mark.parametrize(
    ("target", "secrets", "provider", "model"),
    [
        (ModelTarget(model="a/b"), {"OPENROUTER_API_KEY": "k"}, "openrouter", "a/b"),
        (
            ModelTarget(model="anthropic/claude-opus-4"),
            {"ANTHROPIC_API_KEY": "k"},
            "anthropic",
            "claude-opus-4",
        ),
        (
            ModelTarget(model="claude-opus-4"),
            {"ANTHROPIC_TOKEN": "k"},
            "anthropic",
            "claude-opus-4",
        ),
        (ModelTarget(model="gpt-5", provider="auto"), {"OPENAI_API_KEY": "k"}, "openai", "gpt-5"),
        (ModelTarget(model="x"), {"DEEPSEEK_API_KEY": "k"}, "deepseek", "x"),
        (
            ModelTarget(model="x", base_url="https://api.deepseek.com/v1", api_key="k"),
            {},
            "deepseek",
            "x",
        ),
        (ModelTarget(model="x", base_url="http://127.0.0.1:8/v1"), {}, "custom", "x"),
        (ModelTarget(model="x"), {"OPENAI_BASE_URL": "http://10.0.0.5/v1"}, "custom", "x"),
        (ModelTarget(model="x", provider="Google"), {"GOOGLE_API_KEY": "k"}, "gemini", "x"),
    ],
)
def test_the_provider_is_found_out_from_what_is_there(
    target: ModelTarget, secrets: dict[str, str], provider: str, model: str
) -> None:
    route = resolve(target, secrets)
    assert (route.provider, route.model) == (provider, model)


@pytest.mark.parametrize(
    ("mode", "base_url", "expected"),
    [
        ("codex_responses", "http://127.0.0.1:8/v1", ApiMode.RESPONSES),
        ("", "http://127.0.0.1:8/anthropic", ApiMode.ANTHROPIC_MESSAGES),
        ("", "http://127.0.0.1:8/v1", ApiMode.CHAT_COMPLETIONS),
        ("anthropic_messages", "http://127.0.0.1:8/v1", ApiMode.ANTHROPIC_MESSAGES),
    ],
)
def test_the_protocol_is_named_or_found_out(
    mode: ApiModeName, base_url: str, expected: ApiMode
) -> None:
    target = ModelTarget(model="m", base_url=base_url, api_mode=mode)
    assert resolve(target).api_mode is expected


@pytest.mark.parametrize("named", ["", "custom"])
def test_another_model_of_the_configured_address_keeps_address_and_key(named: str) -> None:
    choice = ModelChoice(
        model="one", provider=named, base_url="http://127.0.0.1:1/v1", api_key="secret"
    )
    target = main_target(Settings(model=choice), "custom", "two")
    assert (target.model, target.base_url, target.api_key) == ("two", choice.base_url, "secret")
    elsewhere = main_target(Settings(model=choice), "openai", "two")
    assert (elsewhere.base_url, elsewhere.api_key) == ("", "")
