"""Says so when an edit leaves a file that cannot be parsed."""

import ast
import json
import tomllib
import warnings

__all__ = ["syntax_problem"]

_MAX_CHARS = 500_000


def syntax_problem(path: str, text: str) -> str:
    """Return what keeps `text` from being parsed, or nothing."""
    if len(text) > _MAX_CHARS:
        return ""
    text = text.removeprefix("\ufeff")
    try:
        if path.endswith(".py"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ast.parse(text)
        elif path.endswith(".json"):
            json.loads(text)
        elif path.endswith(".toml"):
            tomllib.loads(text)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        return str(error) or type(error).__name__
    return ""
