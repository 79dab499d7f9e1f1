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

MANAGED_CONFIG = Path("/etc/hermes/config.yaml")
"""The machine-wide overlay an administrator may install; it wins per key."""


class HermesHome(Struct, frozen=True, kw_only=True):
    """A directory with everything that belongs to one agent."""

    root: Path

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "HermesHome":
        """Return `$HERMES_HOME`, or `~/.hermes` when it is not set."""
        named = environ.get("HERMES_HOME", "").strip()
        user = Path(environ["HOME"]) if environ.get("HOME") else Path.home()
        if not named:
            return cls(root=user / ".hermes")
        if named == "~" or named.startswith("~/"):
            return cls(root=user / named[2:])
        return cls(root=Path(named).absolute())

    @property
    def config_file(self) -> Path:
        return self.root / "config.yaml"

    @property
    def env_file(self) -> Path:
        """The secrets, one `NAME=value` a line."""
        return self.root / ".env"

    @property
    def database(self) -> Path:
        return self.root / "state.db"

    @property
    def soul_file(self) -> Path:
        """Who the agent is."""
        return self.root / "SOUL.md"

    @property
    def memories_dir(self) -> Path:
        return self.root / "memories"

    @property
    def skills_dir(self) -> Path:
        return self.root / "skills"

    @property
    def sessions_dir(self) -> Path:
        """Transcripts and saved conversations."""
        return self.root / "sessions"

    @property
    def logs_dir(self) -> Path:
        return self.root / "logs"

    @property
    def cache_dir(self) -> Path:
        """Files that can be fetched or made again."""
        return self.root / "cache"

    @property
    def sandboxes_dir(self) -> Path:
        """Homes and workspaces of containers and sandboxes."""
        return self.root / "sandboxes"

    @property
    def run_dir(self) -> Path:
        return self.root / "run"

    @property
    def models_dir(self) -> Path:
        return self.root / "models"

    @property
    def backups_dir(self) -> Path:
        """Copies made before something is rewritten."""
        return self.root / "backups"

    @property
    def workspace(self) -> Path:
        """Where the agent's tools start when no other directory is given."""
        return self.root / "workspace"

    @property
    def hooks_dir(self) -> Path:
        return self.root / "hooks"

    @property
    def skins_dir(self) -> Path:
        return self.root / "skins"

    @property
    def scripts_dir(self) -> Path:
        """Scripts that jobs and webhooks may run."""
        return self.root / "scripts"

    @property
    def platforms_dir(self) -> Path:
        """State of the chat platforms, such as pairing files."""
        return self.root / "platforms"

    @property
    def webhooks_file(self) -> Path:
        """Webhook routes added at run time."""
        return self.root / "webhook_subscriptions.json"

    def profile(self, name: str) -> "HermesHome":
        """Return the home of a further agent, kept below this one."""
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
