"""HermesHome: where everything is kept.

A home is a value: naming a path creates nothing. `ensure` makes the directory
when something is about to be written. Each agent has a home of the same shape;
the default agent's home is the Hermes home itself.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from hermes.domain.errors import ConfigError
from hermes.domain.profile import current_profile

MANAGED_CONFIG = Path("/etc/hermes/config.yaml")
"""The machine-wide overlay an administrator may install; it wins per key."""

ACTIVE_PROFILE = "active_profile"
"""The file of the first install that names the profile in use."""


class _Inside:
    """A place in a home, by its name there."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, home: "HermesHome", _kind: object = None) -> Path:
        return home.root / self._name


class HermesHome(Struct, frozen=True, kw_only=True):
    """A directory with everything that belongs to one agent."""

    root: Path

    config_file = _Inside("config.yaml")
    env_file = _Inside(".env")
    """The secrets, one `NAME=value` a line."""
    database = _Inside("state.db")
    """The ledger, unless an earlier Hermes has its own there."""
    ledger_beside = _Inside("ledger.db")
    """The ledger where `state.db` belongs to an earlier Hermes; once there, it stays the ledger."""
    soul_file = _Inside("SOUL.md")
    """Who the agent is."""
    memories_dir = _Inside("memories")
    skills_dir = _Inside("skills")
    cron_dir = _Inside("cron")
    agents_dir = _Inside("agents")
    """The homes of further agents."""
    sessions_dir = _Inside("sessions")
    """Transcripts and saved conversations."""
    logs_dir = _Inside("logs")
    cache_dir = _Inside("cache")
    """Files that can be fetched or made again."""
    sandboxes_dir = _Inside("sandboxes")
    """Homes and workspaces of containers and sandboxes."""
    run_dir = _Inside("run")
    models_dir = _Inside("models")
    backups_dir = _Inside("backups")
    """Copies made before something is rewritten."""
    workspace = _Inside("workspace")
    """Where the agent's tools start when no other directory is given."""
    hooks_dir = _Inside("hooks")
    skins_dir = _Inside("skins")
    scripts_dir = _Inside("scripts")
    """Scripts that jobs and webhooks may run."""
    platforms_dir = _Inside("platforms")
    """State of the chat platforms, such as pairing files."""
    webhooks_file = _Inside("webhook_subscriptions.json")
    """Webhook routes added at run time."""

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "HermesHome":
        """Return the home that is meant: of `HERMES_HOME`, or the profile in use there."""
        home = cls._named(environ)
        chosen = "" if home.root.parent.name == "profiles" else home.active_profile()
        if not chosen:
            return home
        profile = home.profile(chosen)
        if not profile.root.is_dir():
            raise ConfigError(
                f"The profile in use, `{chosen}`, is missing.",
                hint="Go back with: hermes profile use default",
            )
        return profile

    @classmethod
    def first(cls, environ: Mapping[str, str]) -> "HermesHome":
        """Return the install that has the profiles below it."""
        home = cls._named(environ)
        below = home.root.parent.name == "profiles"
        return cls(root=home.root.parent.parent) if below else home

    @classmethod
    def _named(cls, environ: Mapping[str, str]) -> "HermesHome":
        named = environ.get("HERMES_HOME", "").strip()
        user = Path(environ["HOME"]) if environ.get("HOME") else Path.home()
        if not named:
            return cls(root=user / ".hermes")
        if named == "~" or named.startswith("~/"):
            return cls(root=user / named[2:])
        return cls(root=Path(named).absolute())

    def of_turn(self) -> "HermesHome":
        """Return the home of the agent that the running code works for; else this one."""
        profile = current_profile()
        return self if profile is None else HermesHome(root=profile.home)

    def inside(self, path: str) -> Path:
        """Return a path that a person wrote, which is below this home unless absolute."""
        return Path(os.path.normpath(self.root / os.path.expanduser(path)))  # noqa: PTH111

    def active_profile(self) -> str:
        """Return the profile below this home that `hermes profile use` chose; empty for none."""
        try:
            return (self.root / ACTIVE_PROFILE).read_text("utf-8").strip().partition("\n")[0]
        except (OSError, UnicodeDecodeError):
            return ""

    def profile(self, name: str) -> "HermesHome":
        return HermesHome(root=self.root / "profiles" / name)

    def ensure(self) -> "HermesHome":
        """Create the home, readable by its owner only; explain if that fails."""
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        except FileExistsError as error:
            raise ConfigError(
                f"{self.root} should be the Hermes home but is not a directory.",
                hint="Move that file away, or set HERMES_HOME to another directory.",
            ) from error
        except OSError as error:
            raise ConfigError(
                f"The Hermes home {self.root} cannot be created: {error.strerror}.",
                hint="Set HERMES_HOME to a directory that you may write to.",
            ) from error
        if not os.access(self.root, os.W_OK | os.X_OK):
            raise ConfigError(
                f"The Hermes home {self.root} is read-only.",
                hint=f"Make it writable (chmod u+rwx {self.root}) or set HERMES_HOME.",
            )
        return self

    def subdirectory(self, path: Path) -> Path:
        """Create `path`, a directory of this home, when it is first needed."""
        self.ensure()
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"{path} cannot be created: {error.strerror}.",
                hint="Check the permissions of the Hermes home.",
            ) from error
        return path
