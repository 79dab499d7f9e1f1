"""Results that are too long for the context.

The whole text goes into a private file inside the session's environment, so
that the file tools can page through it; the model gets the beginning, the
path and advice.
"""

import re
import shlex

from hermes.domain.ports.execution import Command
from hermes.domain.tools import ToolContext, ToolResult

__all__ = ["PREVIEW_CHARS", "capped", "spill"]

PREVIEW_CHARS = 1500

# The directory must be ours: anybody may have made one of that name in /tmp.
_STORE = (
    "umask 077; d=/tmp/hermes-results; mkdir -p $d 2>/dev/null;"
    " if [ -L $d ] || [ ! -O $d ]; then d=$(mktemp -d /tmp/hermes-results-XXXXXX) || exit 1; fi;"
    ' mkdir -p "$d/"{session} && cat > "$d/"{session}/{call}.txt'
    ' && printf %s "$d/"{session}/{call}.txt'
)


async def capped(result: ToolResult, limit: int, context: ToolContext) -> ToolResult:
    """Return `result`, spilled if its text is longer than `limit`."""
    if not isinstance(result.content, str) or len(result.content) <= limit:
        return result
    return await spill(result, result.content, context)


async def spill(result: ToolResult, text: str, context: ToolContext) -> ToolResult:
    """Move `text` into a file and return a result with a preview of it."""
    script = _STORE.format(session=_safe(context.session_id), call=_safe(context.call_id))
    stored = await context.environment.run(
        Command(script=script, cwd="/", stdin=text.encode("utf-8", "replace"), timeout=30)
    )
    preview = text[:PREVIEW_CHARS]
    if stored.exit_code == 0:
        where = (
            f"The whole result has {len(text)} characters and is in {stored.output}."
            " Page through it with read_file (offset, limit) or search it with search_files."
        )
    else:
        where = (
            f"The whole result had {len(text)} characters and could not be stored."
            " Ask for less at a time."
        )
    return ToolResult(
        content=f"{preview}\n\n[Cut after {len(preview)} characters. {where}]",
        outcome=result.outcome,
        diff=result.diff,
    )


def _safe(name: str) -> str:
    return shlex.quote(re.sub(r"[^A-Za-z0-9_-]", "_", name)[:100] or "_")
