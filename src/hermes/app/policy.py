"""The policy that the configuration asks for."""

from pathlib import Path

from hermes.app.options import AppOptions
from hermes.config.loader import LoadedConfig
from hermes.execution.policy.judge import CommandPolicy, HostPolicy, PolicySettings


def policy_settings(loaded: LoadedConfig, options: AppOptions, *, mode: str) -> PolicySettings:
    """Return what a person has decided about commands in general."""
    home = options.environ.get("HOME") or str(Path.home())
    return PolicySettings(
        mode=mode,
        deny=loaded.config.approvals.deny,
        allowlist=loaded.config.command_allowlist,
        user_home=home,
        hermes_home=str(options.home.root),
    )


def action_policy(loaded: LoadedConfig, options: AppOptions) -> HostPolicy:
    """Return the policy that this configuration asks for."""
    return HostPolicy(
        CommandPolicy(policy_settings(loaded, options, mode="manual")),
        CommandPolicy(policy_settings(loaded, options, mode="off")),
    )
