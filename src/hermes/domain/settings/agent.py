"""Agent settings: the loop, its context and its memory."""

from typing import Annotated, Literal

from msgspec import Meta, field

from hermes.domain.settings.section import (
    AtStart,
    Count,
    Fraction,
    Port,
    Positive,
    Seconds,
    Section,
)


class AgentLoop(Section, frozen=True, kw_only=True):
    """The loop that runs a turn."""

    max_turns: Positive = 90
    """Model calls that one turn may make."""
    clarify_timeout: Seconds = 3600.0
    """Seconds that a question of the model waits for an answer; 0 for no limit."""
    gateway_timeout: Seconds = 1800.0
    """Seconds without activity after which a turn in a chat is stopped; 0 for no limit."""
    gateway_timeout_warning: Seconds = 900.0
    """Seconds without activity after which the chat is warned; 0 for no warning."""
    gateway_notify_interval: Seconds = 180.0
    """Seconds between notices that a turn is still working; 0 for none."""
    gateway_auto_continue_freshness: AtStart[Seconds] = 3600.0
    """Seconds after which a turn that was cut off is not continued by itself; 0 for no limit."""
    restart_drain_timeout: Seconds = 0.0
    """Seconds that running turns get to finish before a restart; 0 restarts at once."""
    api_max_retries: AtStart[Count] = 3
    """How often a failed model call is retried."""
    ephemeral_system_prompt: str = ""
    """Instructions added to every model call and never stored."""
    disabled_toolsets: AtStart[tuple[str, ...]] = ()
    """Toolsets that no agent gets."""
    reasoning_effort: str = ""
    """none, minimal, low, medium, high, xhigh or max; empty for the model's default."""


class Compression(Section, frozen=True, kw_only=True):
    """Summarising older messages before a conversation outgrows the model's context window."""

    enabled: bool = True
    """Summarise older messages automatically."""
    threshold: Fraction = 0.5
    """Share of the context window in use at which compression starts."""
    target_ratio: Fraction = 0.2
    """Share of the context window that the newest messages may keep."""
    protect_last_n: Count = 20
    """How many of the newest messages are kept word for word, within `target_ratio`."""


class Memory(Section, frozen=True, kw_only=True):
    """What the agent remembers between sessions."""

    memory_enabled: bool = True
    """Put the agent's notes (`memories/MEMORY.md`) into the system prompt."""
    user_profile_enabled: bool = True
    """Put the notes about the user (`memories/USER.md`) into the system prompt."""
    memory_char_limit: Positive = 2200
    """Characters of `MEMORY.md` that are read."""
    user_char_limit: Positive = 1375
    """Characters of `USER.md` that are read."""


class Web(Section, frozen=True, kw_only=True):
    """Searching the web and reading pages."""

    backend: str = ""
    """Who searches: firecrawl, parallel, tavily, exa, searxng, brave or ddgs; empty for the first
    that has its key (or, for searxng, its address) in `.env`, else ddgs, which needs none."""
    search_backend: str = ""
    """The same, if it is to count before `backend`."""
    extract_char_limit: Positive = 15_000
    """Characters of a page that the model gets; the rest goes to a file."""


class WebsiteBlocklist(Section, frozen=True, kw_only=True):
    """Sites that no tool may reach."""

    enabled: bool = False
    """Whether the list counts."""
    domains: tuple[str, ...] = ()
    """Domains, with everything below them."""
    shared_files: tuple[str, ...] = ()
    """Files with one domain a line; `#` begins a remark."""


class Security(Section, frozen=True, kw_only=True):
    """What tools may reach in the network."""

    allow_private_urls: bool = False
    """Let tools fetch from private networks too; the addresses of clouds stay closed."""
    website_blocklist: WebsiteBlocklist = WebsiteBlocklist()


class ToolDelegation(Section, frozen=True, kw_only=True):
    """Tasks that the agent gives to child agents (`delegate_task`)."""

    model: str = ""
    """The model of child agents; empty for that of the conversation."""
    provider: str = ""
    """Its provider."""
    max_iterations: Positive = 50
    """Model calls that one task may make."""
    max_summary_chars: Positive = 24000
    """Characters of a report that the agent reads; a longer one goes to a file."""
    child_timeout_seconds: Seconds = 0.0
    """Seconds after which a task is stopped; 0 for no limit."""
    max_concurrent_children: Positive = 3
    """Tasks of one call that run at the same time."""
    max_spawn_depth: Positive = 1
    """Generations: 1 lets tasks have no tasks of their own."""
    orchestrator_enabled: bool = True
    """Let tasks with the role `orchestrator` have tasks of their own, within `max_spawn_depth`."""
    subagent_auto_approve: bool = False
    """Allow what would need an approval in a task, where nobody can be asked; else it is denied."""


class AskAgent(Section, frozen=True, kw_only=True):
    """Questions that the agent puts to other agents of this gateway (`ask_agent`)."""

    enabled: bool = False
    """Offer the tool."""
    agents: tuple[str, ...] = ()
    """Whom it may ask; `*` for every agent there is."""
    max_depth: Positive = 1
    """How far a question may go: 1 lets an agent that was asked ask nobody itself."""
    max_questions: Positive = 5
    """Questions that one turn may put."""
    max_model_calls: Positive = 20
    """Model calls that an answer may take."""
    timeout: Seconds = 600.0
    """Seconds after which a question is given up; 0 for no limit."""


class LoopLimits(Section, frozen=True, kw_only=True):
    exact_failure: Positive = 2
    """Failures of one and the same call."""
    same_tool_failure: Positive = 3
    """Failures of one tool in a row."""
    idempotent_no_progress: Positive = 2
    """Times that a reading call gave the same result again."""


class LoopGuardrails(Section, frozen=True, kw_only=True):
    """Tool calls that lead nowhere within one turn."""

    warnings_enabled: bool = True
    """Tell the model so."""
    hard_stop_enabled: bool = False
    """Block such calls for the rest of the turn."""
    warn_after: LoopLimits = LoopLimits()
    hard_stop_after: LoopLimits = LoopLimits(
        exact_failure=5, same_tool_failure=8, idempotent_no_progress=5
    )


class ToolSearch(Section, frozen=True, kw_only=True):
    """Tools that are looked up instead of being described in every call."""

    enabled: Literal["auto", "on", "off"] | bool = "auto"
    """auto: once the descriptions take more than `threshold_pct` of the context window."""
    threshold_pct: Annotated[float, Meta(ge=0, le=100)] = 10.0
    """Percent of the context window that the descriptions of tools may take."""
    search_default_limit: Positive = 5
    """Tools that a search shows."""
    max_search_limit: Positive = 20
    """Tools that a search shows at most, however many the model asks for."""


class ToolUse(Section, frozen=True, kw_only=True):
    tool_search: ToolSearch = ToolSearch()


class McpToolChoice(Section, frozen=True, kw_only=True):
    """Which tools of a server the agent gets."""

    include: tuple[str, ...] = ()
    """Only these (names or patterns); empty for all."""
    exclude: tuple[str, ...] = ()
    """Not these."""
    resources: bool = True
    """Offer a tool that reads the server's resources."""
    prompts: bool = True
    """Offer a tool that fills in the server's prompts."""


class McpSampling(Section, frozen=True, kw_only=True):
    """Model calls that a server may ask for."""

    enabled: bool = True
    """Let the server ask."""
    max_tokens_cap: Positive = 4096
    """Tokens of one answer at most."""
    max_rpm: Positive = 10
    """Calls a minute."""


class McpServerSettings(Section, frozen=True, kw_only=True):
    """An MCP server: a program that is started, or an address."""

    enabled: bool = True
    """Whether it is used."""
    command: str = ""
    """The program to start."""
    args: tuple[str, ...] = ()
    """Its arguments."""
    env: dict[str, str] = field(default_factory=dict)
    """Its variables; of ours it gets PATH, HOME and the like, no secrets."""
    cwd: str = ""
    """Where it starts."""
    url: str = ""
    """Its address, instead of a program."""
    headers: dict[str, str] = field(default_factory=dict)
    """Sent with each request."""
    transport: Literal["http", "sse"] = "http"
    """How an address is spoken to; sse is the old way."""
    timeout: Seconds = 300.0
    """Seconds that one call may take."""
    connect_timeout: Seconds = 60.0
    """Seconds that connecting may take."""
    keepalive: Seconds = 30.0
    """Seconds between looks whether it is still there."""
    auth: Literal["", "oauth", "client_credentials"] = ""
    """How to sign in: `oauth` after `hermes mcp login NAME`, or as a program with a secret."""
    client_id: str = ""
    """Who signs in, where the server does not register clients by itself."""
    client_secret: str = ""
    """Its secret."""
    client_key: str = ""
    """File with a private key (PEM) with which a program signs in, in place of a secret."""
    client_key_algorithm: str = "ES256"
    """How that key signs: ES256, RS256 and the like."""
    issuer: str = ""
    """Who alone gets the secret of a program; empty for whom the server names."""
    client_metadata_url: str = ""
    """Address of a document that describes the client, for servers that read it."""
    scope: str = ""
    """What is asked for when signing in; empty for what the server names."""
    oauth_port: Port = 33418
    """Port on this machine to which the browser comes back."""
    roots: tuple[str, ...] = ()
    """Folders that the server is told of."""
    elicitation: bool = True
    """Let the server ask the person."""
    tools: McpToolChoice = McpToolChoice()
    sampling: McpSampling = McpSampling()


class BrowserSettings(Section, frozen=True, kw_only=True):
    """The browser of the tools: Chromium on this machine, or one elsewhere."""

    cdp_url: str = ""
    """Address of another browser's DevTools; empty to start Chromium here."""
    inactivity_timeout: Seconds = 120.0
    """Seconds after which the page of a session is closed."""
    command_timeout: Seconds = 30.0
    """Seconds that one step may take."""
    allow_private_urls: bool = False
    """Let the browser reach private networks, even if other tools may not."""
    dialog_policy: Literal["must_respond", "accept", "dismiss"] = "must_respond"
    """What happens to dialogs of a page: the model answers, or they are answered for it."""
    dialog_timeout_s: Seconds = 300.0
    """Seconds after which a dialog that nobody answers is dismissed."""


class CheckpointSettings(Section, frozen=True, kw_only=True):
    """Records of a project from before the agent changed it (`/rollback`)."""

    enabled: bool = False
    """Make a record before the first change of each turn."""
    max_snapshots: Positive = 20
    """Records that are kept of one project."""
    max_file_size_mb: Positive = 10
    """Larger files are left out."""
    auto_prune: bool = True
    """Remove records that are older than `retention_days`."""
    retention_days: Positive = 7
    """Days that records are kept."""
