"""Named queries, read once from the `.sql` files beside this module.

A block starts with `-- name: <name>`; the comment line after it says what the
query does. `sql("turns.insert")` is block `insert` of `turns.sql`.
"""

import re
from functools import cache
from importlib.resources import files

__all__ = ["names", "sql"]

_HEADER = re.compile(r"^-- name: *(\w+) *$", re.MULTILINE)


def sql(name: str) -> str:
    """Return the text of a named query."""
    return _all()[name]


def names() -> tuple[str, ...]:
    """Return the names of all queries."""
    return tuple(_all())


@cache
def _all() -> dict[str, str]:
    folder = files("hermes.state.sqlite") / "sql"
    found: dict[str, str] = {}
    for file in folder.iterdir():
        if file.name.endswith(".sql"):
            subject = file.name.removesuffix(".sql")
            blocks = _HEADER.split(file.read_text(encoding="utf-8"))[1:]
            for name, text in zip(blocks[::2], blocks[1::2], strict=True):
                found[f"{subject}.{name}"] = text.strip()
    return found
