"""Finding one setting in three places: environment, platform block, root block."""

from collections.abc import Mapping, Sequence

import msgspec

from hermes.domain.errors import ConfigError

__all__ = ["Lookup"]

_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"0", "false", "no", "off", ""})


class Lookup:
    """Typed reading of loosely typed settings."""

    def __init__(
        self,
        platform: Mapping[str, object],
        root_block: Mapping[str, object],
        variables: Mapping[str, str],
    ) -> None:
        extra = platform.get("extra")
        blocks = (extra if isinstance(extra, Mapping) else {}, platform, root_block)
        self._blocks: tuple[Mapping[str, object], ...] = blocks
        self._variables = variables

    def text(self, key: str, *, env: str | None = None) -> str:
        """Return a setting as text; empty if it is not set."""
        value = self._find(key, env)
        if isinstance(value, bool):
            return "true" if value else "false"
        if value is None or isinstance(value, str | int | float):
            return "" if value is None else str(value).strip()
        raise self._wrong(key, "a text")

    def flag(self, key: str, *, default: bool) -> bool:
        """Return a setting as yes or no."""
        word = self.text(key).lower()
        if word in _YES:
            return True
        if word in _NO:
            return False if word else default
        raise self._wrong(key, "true or false")

    def seconds(self, key: str, *, default: float, env: str | None = None) -> float:
        """Return a setting as a positive number."""
        word = self.text(key, env=env)
        try:
            number = float(word) if word else default
        except ValueError:
            raise self._wrong(key, "a number") from None
        if not 0 < number < 1e6:
            raise self._wrong(key, "a positive number")
        return number

    def names(self, key: str) -> frozenset[str]:
        """Return a list of ids, however it is written: list, commas, a single one."""
        return frozenset(part.strip() for line in self.lines(key) for part in line.split(","))

    def lines(self, key: str) -> tuple[str, ...]:
        """Return a list of texts; text is a JSON list, or lines, or parts between commas."""
        value = self._find(key, None)
        if isinstance(value, str):
            value = _split(value)
        if value is None:
            return ()
        if isinstance(value, int | float):
            return (str(value),)
        if isinstance(value, Sequence | frozenset | set):
            return tuple(text for item in value if (text := str(item).strip()))
        raise self._wrong(key, "a list")

    def mapping(self, key: str) -> dict[str, str]:
        """Return a mapping from ids to texts."""
        value = self._find(key, None)
        if value is None:
            return {}
        if isinstance(value, Mapping):
            return {str(name): str(text) for name, text in value.items() if text}
        raise self._wrong(key, "a mapping")

    def tables(self, key: str) -> list[Mapping[str, object]]:
        """Return a list of mappings."""
        value = self._find(key, None)
        if value is None:
            return []
        if isinstance(value, list):
            return [item for item in value if isinstance(item, Mapping)]
        raise self._wrong(key, "a list")

    def _find(self, key: str, env: str | None) -> object:
        name = f"TELEGRAM_{env or key.upper().replace('.', '_')}"
        if self._variables.get(name, "").strip():
            return self._variables[name]
        for block in self._blocks:
            value = _inside(block, key)
            if value is not None:
                return value
        return None

    def _wrong(self, key: str, wanted: str) -> ConfigError:
        return ConfigError(
            f"Telegram's setting {key} must be {wanted}.",
            hint=f"Correct `{key}` under platforms.telegram.extra, or the variable "
            f"TELEGRAM_{key.upper().replace('.', '_')}.",
        )


def _inside(block: Mapping[str, object], key: str) -> object:
    """Look up `a.b` as `{a: {b: ...}}` or, as it was written before, as `a_b`."""
    head, _, tail = key.partition(".")
    if not tail:
        return block.get(key)
    inner = block.get(head)
    if isinstance(inner, Mapping) and inner.get(tail) is not None:
        value: object = inner[tail]
        return value
    return block.get(f"{head}_{tail}")


def _split(text: str) -> list[object]:
    if text.lstrip().startswith("["):
        try:
            listed = msgspec.json.decode(text, type=list[object])
        except msgspec.MsgspecError:
            pass
        else:
            return listed
    return [*(text.splitlines() if "\n" in text else text.split(","))]
