"""Policy on actions: what a tool call is about to do, judged before it does it."""

from collections.abc import Collection, Iterator
from pathlib import Path

from hermes.app.options import AppOptions
from hermes.config.loader import LoadedConfig
from hermes.domain.approvals import Gate, Verdict
from hermes.domain.ports.execution import Environment
from hermes.domain.tools import Intent
from hermes.execution.policy.policy import CommandPolicy, PolicySettings

__all__ = ["HostPolicy", "action_policy", "policy_settings"]

ALLOW = Verdict(gate=Gate.ALLOW)


class HostPolicy:
    """Judges intents on backends that can reach the host; isolated ones need no asking."""

    def __init__(self, careful: CommandPolicy, trusting: CommandPolicy) -> None:
        self._careful = careful
        self._trusting = trusting

    def judge(
        self, intent: Intent, environment: Environment, *, grants: Collection[str], trusted: bool
    ) -> Verdict:
        """Return the strictest verdict on anything the call would do."""
        if environment.isolated:
            return ALLOW
        policy = self._trusting if trusted else self._careful
        worst = ALLOW
        for verdict in _verdicts(policy, intent, environment, grants):
            if verdict.gate is Gate.BLOCK:
                return verdict
            if verdict.gate is Gate.ASK and worst.gate is Gate.ALLOW:
                worst = verdict
        return worst


def _verdicts(
    policy: CommandPolicy, intent: Intent, environment: Environment, grants: Collection[str]
) -> Iterator[Verdict]:
    if intent.command:
        cwd = environment.resolve(intent.workdir) if intent.workdir else environment.cwd
        yield policy.judge(intent.command, cwd=cwd, grants=grants)
    for path in intent.writes:
        yield policy.judge_write(environment.resolve(path), cwd=environment.cwd, grants=grants)
    if intent.code:
        yield policy.judge_code("python", intent.code, cwd=environment.cwd, grants=grants)


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
