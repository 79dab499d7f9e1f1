"""Where side effects happen, and what may happen without asking."""

from typing import Any, Literal

from msgspec import field

from hermes.config.schema.base import Count, Port, Positive, Seconds, Section

__all__ = [
    "Approvals",
    "Browser",
    "Camofox",
    "CodeExecution",
    "Mcp",
    "McpServer",
    "Security",
    "Terminal",
    "ToolSearch",
    "Tools",
    "Web",
    "WebsiteBlocklist",
]

_IMAGE = "nikolaik/python-nodejs:python3.11-nodejs20"


class Terminal(Section, frozen=True, kw_only=True):
    """Where commands run. Each key is also `TERMINAL_<KEY>` in the environment."""

    backend: Literal[
        "local", "sandbox", "docker", "ssh", "singularity", "apptainer", "modal", "daytona"
    ] = "local"
    """Where commands run; `TERMINAL_ENV` in the environment."""
    cwd: str = "."
    """Where commands start; `.` is where Hermes was started."""
    timeout: Seconds = 180.0
    """Seconds a command may take unless it asks for another limit."""
    lifetime_seconds: Seconds = 300.0
    """Seconds an unused environment is kept."""
    daemon_term_grace_seconds: Seconds = 2.0
    """Seconds between asking a process to end and ending it."""
    env_passthrough: tuple[str, ...] = ()
    """Variables that commands may see although they look like secrets."""
    home_mode: str = "auto"
    """Whether commands get a HOME of their own: auto, real or profile."""
    shell_init_files: tuple[str, ...] = ()
    auto_source_bashrc: bool = True
    persistent_shell: bool = True
    """Keep directory and variables from one command to the next."""
    sandbox_dir: str = ""
    """Where sandboxes keep their files; empty for the Hermes home."""
    sandbox_network: bool = False
    """Let commands on `sandbox` use the host's network, loopback included."""
    sandbox_read_only_paths: tuple[str, ...] = ()
    """Further places that commands on `sandbox` may read."""
    docker_image: str = _IMAGE
    singularity_image: str = f"docker://{_IMAGE}"
    modal_image: str = _IMAGE
    daytona_image: str = _IMAGE
    docker_forward_env: tuple[str, ...] = ()
    """Variables handed to containers by name."""
    docker_env: dict[str, str] = field(default_factory=dict)
    """Variables set in containers."""
    docker_volumes: tuple[str, ...] = ()
    docker_mount_cwd_to_workspace: bool = False
    docker_network: bool = True
    docker_extra_args: tuple[str, ...] = ()
    docker_run_as_host_user: bool = False
    container_cpu: Seconds = 1.0
    container_memory: Count = 5120
    """MB."""
    container_disk: Count = 51200
    """MB."""
    container_persistent: bool = True
    """Keep a container's files between sessions."""
    modal_mode: str = "auto"
    ssh_host: str = ""
    ssh_user: str = ""
    ssh_port: Port = 22
    ssh_key: str = ""
    """Path of the private key; empty for what ssh finds by itself."""


class CodeExecution(Section, frozen=True, kw_only=True):
    """Scripts the model writes and runs in one call."""

    mode: Literal["project", "strict"] = "project"


class Web(Section, frozen=True, kw_only=True):
    """Searching and reading the web."""

    backend: str = ""
    """For both; empty for the first that has a key."""
    search_backend: str = ""
    extract_backend: str = ""
    extract_char_limit: Positive = 15000


class Camofox(Section, frozen=True, kw_only=True):
    """The Camofox browser."""

    managed_persistence: bool = False
    user_id: str = ""
    session_key: str = ""
    adopt_existing_tab: bool = False
    rewrite_loopback_urls: bool = False
    loopback_host_alias: str = ""


class Browser(Section, frozen=True, kw_only=True):
    """The browser tool."""

    inactivity_timeout: Seconds = 120.0
    command_timeout: Seconds = 30.0
    record_sessions: bool = False
    headed: bool = False
    allow_private_urls: bool = False
    engine: str = "auto"
    auto_local_for_private_urls: bool = True
    cdp_url: str = ""
    """Use the browser at this address instead of starting one."""
    allow_unsafe_evaluate: bool = False
    restrict_evaluate: bool = False
    dialog_policy: str = "must_respond"
    dialog_timeout_s: Seconds = 300.0
    camofox: Camofox = Camofox()


class Approvals(Section, frozen=True, kw_only=True):
    """What a person has to allow."""

    mode: Literal["manual", "smart", "off"] = "manual"
    """manual: always ask; smart: a model decides clear cases; off: never ask."""
    timeout: Seconds = 300.0
    """Seconds until an unanswered request counts as denied."""
    cron_mode: Literal["deny", "approve"] = "deny"
    """The answer for scheduled jobs, where nobody can be asked."""
    deny: tuple[str, ...] = ()
    """Patterns of commands that are never run."""
    mcp_reload_confirm: bool = True
    destructive_slash_confirm: bool = True


class WebsiteBlocklist(Section, frozen=True, kw_only=True):
    """Sites that tools do not open."""

    enabled: bool = False
    domains: tuple[str, ...] = ()
    shared_files: tuple[str, ...] = ()
    """Files with one domain a line."""


class Security(Section, frozen=True, kw_only=True):
    """What protects the machine and its secrets."""

    allow_private_urls: bool = False
    """Let tools open addresses of the local network."""
    redact_secrets: bool = True
    """Replace known secrets in everything that leaves Hermes."""
    tirith_enabled: bool = True
    """Check commands with the tirith program when it is installed."""
    tirith_path: str = "tirith"
    tirith_timeout: Seconds = 5.0
    tirith_fail_open: bool = True
    website_blocklist: WebsiteBlocklist = WebsiteBlocklist()
    allow_lazy_installs: bool = True


class ToolSearch(Section, frozen=True, kw_only=True):
    """Offering rarely used tools by search instead of in every call."""

    enabled: str | bool = "auto"
    threshold_pct: Count = 10
    """Share of the context that tools may take before search is used."""
    search_default_limit: Positive = 5
    max_search_limit: Positive = 20


class Tools(Section, frozen=True, kw_only=True):
    """Tools in general."""

    tool_search: ToolSearch = ToolSearch()


class Mcp(Section, frozen=True, kw_only=True):
    """MCP in general."""

    auto_reload_on_config_change: bool = True


class McpServer(Section, frozen=True, kw_only=True):
    """One MCP server: a `command` to start, or a `url` to reach."""

    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    url: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    transport: str = ""
    timeout: Seconds = 300.0
    connect_timeout: Seconds = 60.0
    keepalive: Any = None
    auth: Any = None
    enabled: bool = True
    tools: dict[str, Any] = field(default_factory=dict)
    """include, exclude, resources, prompts."""
    sampling: dict[str, Any] = field(default_factory=dict)
    roots: Any = None
    elicitation: Any = None
