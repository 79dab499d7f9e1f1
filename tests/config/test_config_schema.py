"""Every key that people may have in their file is known, with its known default."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from hermes.config.check import fields_by_name, known_keys, struct_of
from hermes.config.document import format_key
from hermes.config.loader import load_config
from hermes.config.meaning import default_of, meaning_of, type_of
from hermes.config.paths import HermesHome
from hermes.domain.settings import Settings
from hermes.domain.settings.doors import Display, Sessions
from hermes.domain.settings.models import Speech

KNOWN = """\
model: ''
providers: {}
fallback_providers: []
credential_pool_strategies: {}
toolsets: [hermes-cli]
max_concurrent_sessions: null
max_live_sessions: 16
agent: {max_turns: 90, gateway_timeout: 1800, gateway_timeout_warning: 900,
  gateway_notify_interval: 180, restart_drain_timeout: 0, api_max_retries: 3, service_tier: '',
  tool_use_enforcement: auto, intent_ack_continuation: auto, task_completion_guidance: true,
  parallel_tool_call_guidance: true, environment_probe: true, environment_hint: '',
  coding_context: auto, coding_instructions: '', verify_guidance: true, verify_on_stop: auto,
  max_verify_nudges: 3, clarify_timeout: 3600, gateway_auto_continue_freshness: 3600,
  local_stream_stale_timeout: 900, image_input_mode: auto, disabled_toolsets: [],
  reasoning_overrides: {}}
terminal: {backend: local, cwd: ., timeout: 180, daemon_term_grace_seconds: 2,
  env_passthrough: [], home_mode: auto, shell_init_files: [], auto_source_bashrc: true,
  docker_image: 'nikolaik/python-nodejs:python3.11-nodejs20',
  singularity_image: 'docker://nikolaik/python-nodejs:python3.11-nodejs20',
  docker_forward_env: [], docker_env: {}, docker_volumes: [],
  docker_mount_cwd_to_workspace: false, docker_network: true, docker_extra_args: [],
  docker_run_as_host_user: false, container_cpu: 1, container_memory: 5120,
  container_disk: 51200, container_persistent: true, persistent_shell: true, modal_mode: auto}
web: {backend: '', search_backend: '', extract_backend: '', extract_char_limit: 15000}
browser: {inactivity_timeout: 120, command_timeout: 30, record_sessions: false, headed: false,
  allow_private_urls: false, engine: auto, auto_local_for_private_urls: true, cdp_url: '',
  allow_unsafe_evaluate: false, restrict_evaluate: false, dialog_policy: must_respond,
  dialog_timeout_s: 300, camofox: {}}
checkpoints: {enabled: false, max_snapshots: 20, max_total_size_mb: 500, max_file_size_mb: 10,
  auto_prune: true, retention_days: 7}
context_file_max_chars: null
file_read_max_chars: 100000
mcp_discovery_timeout: 1.5
mcp: {auto_reload_on_config_change: true}
tool_output: {max_bytes: 50000, max_lines: 2000, max_line_length: 2000}
tool_loop_guardrails: {warn_after: {exact_failure: 2, same_tool_failure: 3,
  idempotent_no_progress: 2}, hard_stop_after: {exact_failure: 5, same_tool_failure: 8,
  idempotent_no_progress: 5}}
compression: {enabled: true, threshold: 0.5, target_ratio: 0.2, protect_first_n: 3,
  protect_last_n: 20, hygiene_hard_message_limit: 5000, abort_on_summary_failure: false,
  in_place: true}
kanban: {dispatch_in_gateway: true, dispatch_interval_seconds: 60, failure_limit: 2,
  auto_decompose: true, dispatch_stale_timeout: 14400, orchestrator_profile: '',
  default_assignee: '', max_in_progress_per_profile: null, worker_log_rotate_bytes: 2097152}
prompt_caching: {cache_ttl: 5m}
openrouter: {response_cache: true, ttl: 300, min_coding_score: 0.65}
auxiliary: {transient_retries: 2, vision: {provider: auto, timeout: 120},
  web_extract: {timeout: 360}, compression: {timeout: 120}, skills_hub: {timeout: 30},
  approval: {timeout: 30}, mcp: {timeout: 30}, title_generation: {timeout: 30, enabled: true},
  memory_query_rewrite: {timeout: 8}, tts_audio_tags: {timeout: 30},
  triage_specifier: {timeout: 120}, kanban_decomposer: {timeout: 180},
  profile_describer: {timeout: 60}, goal_judge: {timeout: 60}, curator: {timeout: 600},
  monitor: {timeout: 60}, background_review: {timeout: 120}, moa_reference: {timeout: 900},
  moa_aggregator: {timeout: 900}}
display: {busy_input_mode: interrupt, interface: cli, show_reasoning: true,
  reasoning_full: false, streaming: false, final_response_markdown: strip, inline_diffs: true,
  show_cost: false, skin: default, language: en, tool_progress_command: false,
  tool_preview_length: 0, tool_progress_grouping: accumulate, interim_assistant_messages: true,
  friendly_tool_labels: true, reasoning_style: code, ephemeral_system_ttl: 0,
  platforms: {telegram: {streaming: true}, discord: {streaming: false}},
  runtime_footer: {enabled: false, fields: [model, context_pct, cwd]}, pet: {}}
dashboard: {turn_isolation: false, public_url: '', basic_auth: {}}
privacy: {redact_pii: false}
tts: {provider: edge}
stt: {enabled: true, echo_transcripts: true, provider: local, local: {model: base}}
voice: {record_key: ctrl+b, max_recording_seconds: 120, auto_tts: false, beep_enabled: true,
  silence_threshold: 200, silence_duration: 3.0}
human_delay: {mode: off, min_ms: 800, max_ms: 2500}
context: {engine: compressor}
memory: {memory_enabled: true, user_profile_enabled: true, write_approval: false,
  memory_char_limit: 2200, user_char_limit: 1375, provider: ''}
delegation: {model: '', inherit_mcp_toolsets: true, max_iterations: 50, max_summary_chars: 24000,
  child_timeout_seconds: 0, max_concurrent_children: 3, max_spawn_depth: 1,
  orchestrator_enabled: true, subagent_auto_approve: false}
prefill_messages_file: ''
goals: {max_turns: 20}
moa: {presets: {}}
skills: {external_dirs: [], template_vars: true, inline_shell: false,
  guard_agent_created: false, write_approval: false}
curator: {interval_hours: 168, min_idle_hours: 2, stale_after_days: 30, archive_after_days: 90,
  consolidate: false, backup: {keep: 5}}
timezone: ''
approvals: {mode: manual, timeout: 300, cron_mode: deny, deny: [], mcp_reload_confirm: true,
  destructive_slash_confirm: true}
command_allowlist: []
quick_commands: {}
platform_hints: {}
hooks: {}
hooks_auto_accept: false
personalities: {}
security: {allow_private_urls: false, redact_secrets: true, tirith_enabled: true,
  tirith_timeout: 5, tirith_fail_open: true, allow_lazy_installs: true,
  website_blocklist: {enabled: false, domains: [], shared_files: []}}
cron: {provider: '', chronos: {}, wrap_response: true, mirror_delivery: false,
  max_parallel_jobs: null, output_retention: 50}
code_execution: {mode: project}
tools: {tool_search: {enabled: auto, threshold_pct: 10, search_default_limit: 5}}
logging: {level: INFO, max_size_mb: 5, backup_count: 3}
model_catalog: {ttl_hours: 1}
network: {force_ipv4: false}
gateway: {delivery_ledger: true, platform_connect_timeout: 30, write_sessions_json: true,
  scale_to_zero: {idle_timeout_minutes: 5}, message_timestamps: {enabled: false},
  max_inbound_media_bytes: 134217728, strict: false, media_delivery_allow_dirs: [],
  trust_recent_files: true, api_server: {max_concurrent_runs: 2000}}
streaming: {enabled: true, transport: auto, edit_interval: 0.8, buffer_threshold: 24,
  cursor: ' ▉', fresh_final_after_seconds: 0}
sessions: {auto_prune: false, retention_days: 90, vacuum_after_prune: true,
  write_json_snapshots: false}
session_reset: {mode: none, at_hour: 4, idle_minutes: 1440, notify: true,
  bg_process_max_age_hours: 24}
updates: {pre_update_backup: quick, backup_keep: 5}
lsp: {wait_timeout: 5, install_strategy: auto}
paste_collapse_threshold: 5
paste_collapse_char_threshold: 2000
default_agent: main
agents: {}
routes: []
"""

OTHERS = (
    "bedrock vertex slack discord telegram mattermost matrix whatsapp signal honcho x_search"
    " secrets computer_use desktop onboarding mcp_servers custom_providers fallback_model image_gen"
    " video_gen plugins smart_model_routing platform_toolsets known_plugin_toolsets session_reset"
    " group_sessions_per_user thread_sessions_per_user stt_echo_transcripts reset_triggers"
    " always_log_local filter_silence_narration multiplex_profiles profile_routes platforms"
    " require_mention unauthorized_dm_behavior"
)


@pytest.fixture
def home(tmp_path: Path) -> HermesHome:
    return HermesHome(root=tmp_path)


def load(home: HermesHome, text: str) -> tuple[Settings, tuple[str, ...]]:
    home.config_file.write_text(text, "utf-8")
    loaded = load_config(home, {}, managed=home.root / "none")
    return loaded.config, loaded.warnings


def test_a_file_that_spells_out_the_known_defaults_changes_nothing(home: HermesHome) -> None:
    config, warnings = load(home, KNOWN)
    assert warnings == ()
    # Four defaults differ on purpose: what is shown, that commands run in a sandbox, that sessions
    # which were opened for requests only do not stay for ever, and who speaks.
    terminal = msgspec.structs.replace(config.terminal, backend="sandbox")
    changed = msgspec.structs.replace(config, display=Display(), terminal=terminal)
    changed = msgspec.structs.replace(changed, sessions=Sessions(), tts=Speech())
    assert changed == Settings()


def test_no_key_that_is_called_useless_is_a_setting() -> None:
    assert [format_key(path) for path in known_keys() if type_of(path) is not None] == []


def test_a_key_without_an_effect_is_named_with_what_to_use_instead(home: HermesHome) -> None:
    home.config_file.write_text("kanban: {x: 1}\nskills: {}\nagent: {environment_hint: x}\n")
    loaded = load_config(home, {}, managed=home.root / "none")
    assert loaded.warnings == ()
    assert loaded.unused == (
        "config.yaml:1: kanban has no effect here: not supported yet",
        (
            "config.yaml:3: agent.environment_hint has no effect here:"
            " not supported; use platform_hints or SOUL.md"
        ),
    )


@pytest.mark.parametrize("key", OTHERS.split())
def test_every_other_legal_root_key_is_known(home: HermesHome, key: str) -> None:
    config, warnings = load(home, f"{key}:\n")
    assert warnings == ()
    assert msgspec.structs.replace(config, platforms={}) == Settings()


def sections(kind: type[Struct], path: tuple[str, ...]) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for name, info in fields_by_name(kind).items():
        inner = struct_of(info.type)
        found += [(*path, name)] if inner is None else sections(inner, (*path, name))
    return found


def test_every_key_can_be_explained() -> None:
    keys = sections(Settings, ())
    assert len(keys) > 100
    assert [key for key in keys if not meaning_of(key).endswith(".")] == []
    assert meaning_of(("approvals", "timeout")).startswith("Seconds until")
    assert meaning_of(("platforms", "telegram", "allowed_users")).startswith("Ids of users")
    assert meaning_of(("terminal",)).startswith("Where commands run.")
    assert default_of(("platforms", "telegram", "allow_all_users")) is False


def test_sections_are_frozen() -> None:
    config: Any = Settings()
    with pytest.raises(AttributeError):
        config.terminal.lifetime_seconds = 5
