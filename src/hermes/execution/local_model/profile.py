"""How a model of this machine wants to be treated: prompt, tools, limits.

A very small model reads few tokens a second and follows few instructions, so
it gets an identity of a few lines, no project files, and two tools whose calls
are made valid by constrained decoding. Larger GGUF models are treated like any
other model.
"""

from typing import Final

from msgspec import Struct

from hermes.execution.local_model.files import LocalModel

__all__ = ["STANDARD", "TINY", "TOY_NOTICE", "Profile", "profile_for"]

TOY_NOTICE: Final = (
    "This is SmolLM2-135M, a toy-sized model for trying things out: it runs on this computer"
    " without a network, is often wrong, and can do little more than chat, list a folder or"
    " read a file. Choose a capable model with `hermes model`."
)
"""What the banner and the documentation say about the embedded model."""

_TINY_BYTES: Final = 500_000_000
"""Files below this hold models that cannot be trusted with free tool calls."""


class Profile(Struct, frozen=True, kw_only=True):
    """What the composition root needs to know."""

    system: str | None
    """The whole system prompt; None: the agent's usual one."""
    tools: tuple[str, ...] | None
    """The only tools offered; None: the agent's usual ones."""
    n_ctx: int
    max_tokens: int | None
    temperature: float | None
    repeat_penalty: float | None = None
    constrained: bool
    """Calls are made valid by the server; otherwise the model's own template does it."""
    titles: bool
    """Whether it is able to name sessions."""


TINY: Final = Profile(
    system="You are Hermes, a small assistant that runs on this computer.",
    tools=("read_file", "search_files"),
    n_ctx=4096,
    max_tokens=400,
    temperature=0.2,
    repeat_penalty=1.1,
    constrained=True,
    titles=False,
)
STANDARD: Final = Profile(
    system=None,
    tools=None,
    n_ctx=16_384,
    max_tokens=None,
    temperature=None,
    constrained=False,
    titles=True,
)


def profile_for(model: LocalModel) -> Profile:
    """Return how `model` is treated, within the context it was trained for."""
    base = TINY if model.size_bytes < _TINY_BYTES else STANDARD
    trained = model.context_length or base.n_ctx
    if trained >= base.n_ctx:
        return base
    return Profile(
        system=base.system,
        tools=base.tools,
        n_ctx=trained,
        max_tokens=base.max_tokens,
        temperature=base.temperature,
        repeat_penalty=base.repeat_penalty,
        constrained=base.constrained,
        titles=base.titles,
    )
