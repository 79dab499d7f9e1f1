"""Reasoning in a chat: a quoted block above the answer, and only if asked for."""

__all__ = ["quoted"]


def quoted(reasoning: str, limit: int) -> str:
    """Return `reasoning` as a Markdown quote of at most about `limit` characters."""
    thought = reasoning.strip()
    if not thought or limit <= 0:
        return ""
    if len(thought) > limit:
        thought = thought[:limit].rstrip() + "…"
    # A fence inside would swallow the quote marks of the lines behind it.
    lines = thought.replace("```", "'''").replace("~~~", "'''").split("\n")
    return "\n".join(f"> {'💭 ' if number == 0 else ''}{line}" for number, line in enumerate(lines))
