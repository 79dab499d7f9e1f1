"""What a route's script makes of a payload.

It gets the payload as JSON on standard input. A JSON object that it prints
takes the payload's place, any other text becomes `script_output` in it; a
script that fails or has nothing to say has decided that the event does not
matter.
"""

import logging
from typing import Any

import msgspec
from msgspec import Struct

from hermes.control.webhooks.ports import ScriptRunner
from hermes.control.webhooks.requests import HookRefused

__all__ = ["Ignored", "apply_script"]

log = logging.getLogger(__name__)

SILENT = "[SILENT]"
IGNORE = "__hermes_ignore__"


class Ignored(Struct, frozen=True):
    """The event does not matter."""

    reason: str


async def apply_script(
    runner: ScriptRunner, script: str, payload: Any, timeout: float
) -> Any | Ignored:
    """Run a script; return what takes the payload's place."""
    outcome = await runner.run(script, msgspec.json.encode(payload), timeout)
    if outcome.timed_out:
        raise HookRefused(503, "The script of this route did not end in time.")
    if outcome.cut:
        raise HookRefused(503, "The script of this route wrote too much.")
    if outcome.exit_code != 0:
        log.warning("webhook script %s: exit %d: %s", script, outcome.exit_code, outcome.errors)
        return Ignored("script failed")
    return _meaning(outcome.output.strip(), payload)


def _meaning(output: str, payload: Any) -> Any | Ignored:
    if not output or output == SILENT:
        return Ignored("script said nothing")
    try:
        made = msgspec.json.decode(output)
    except (msgspec.DecodeError, RecursionError, ValueError):
        made = None
    if not isinstance(made, dict):
        whole = payload if isinstance(payload, dict) else {"payload": payload}
        return {**whole, "script_output": output}
    return Ignored("script") if made.get(IGNORE) is True else made
