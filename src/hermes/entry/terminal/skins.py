"""Skins: the look of the terminal door, as data.

A skin is a YAML file: three come with Hermes, more are read from `skins/` in
the home. A skin that leaves something out inherits it from `default`. A file
that cannot be read is named in the error and never ends the chat.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import yaml
from msgspec import Struct

from hermes.domain.errors import ConfigError, NotFound

BUILT_IN = ("default", "mono", "ember")
_FILES = Path(__file__).parent / "skin_files"


class Palette(Struct, frozen=True, kw_only=True):
    """Colours as `#rrggbb`; empty for the terminal's own."""

    banner_title: str = ""
    banner_dim: str = ""
    ui_accent: str = ""
    ui_warn: str = ""
    ui_error: str = ""
    prompt: str = ""
    reasoning: str = ""
    tool: str = ""
    diff_add: str = ""
    diff_remove: str = ""
    status_bar_bg: str = ""
    status_bar_text: str = ""


class Spinner(Struct, frozen=True, kw_only=True):
    waiting_faces: tuple[str, ...] = ("(o_o)",)
    thinking_faces: tuple[str, ...] = ()
    thinking_verbs: tuple[str, ...] = ("thinking",)


class Branding(Struct, frozen=True, kw_only=True):
    agent_name: str = "Hermes"
    welcome: str = ""
    prompt_symbol: str = "❯"
    working_symbol: str = "⚕ ❯"


class Skin(Struct, frozen=True, kw_only=True):
    name: str
    description: str = ""
    colors: Palette = Palette()
    spinner: Spinner = Spinner()
    branding: Branding = Branding()
    tool_prefix: str = "┊"
    code_theme: str = "monokai"
    tips: tuple[str, ...] = ()


def skin_names(directory: Path | None) -> Sequence[str]:
    own = sorted(path.stem for path in directory.glob("*.y*ml")) if directory else []
    return list(dict.fromkeys([*BUILT_IN, *own]))


def load_skin(name: str, directory: Path | None = None) -> Skin:
    """Return the skin called `name`; a file in `directory` wins over a built-in one."""
    files = [
        path
        for folder in (directory, _FILES)
        for suffix in (".yaml", ".yml")
        if folder and Path(name).name == name
        if (path := folder / f"{name}{suffix}").is_file()
    ]
    if not files:
        known = ", ".join(skin_names(directory))
        raise NotFound(f"There is no skin `{name}`.", hint=f"There are: {known}.")
    usual, own = _default_data(), _read(files[0])
    nested = {
        key: {**usual[key], **value}
        for key, value in own.items()
        if isinstance(value, dict) and isinstance(usual.get(key), dict)
    }
    try:
        return msgspec.convert({**usual, **own, **nested, "name": name}, Skin)
    except msgspec.ValidationError as error:
        raise ConfigError(f"The skin `{name}` does not fit: {error}.") from error


@cache
def _default_data() -> dict[str, Any]:
    return _read(_FILES / "default.yaml")


def _read(path: Path) -> dict[str, Any]:
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(
            f"The skin {path} cannot be read: {error}.", hint="Correct the file."
        ) from error
    if not isinstance(data, dict):
        raise ConfigError(f"The skin {path} is not a mapping.", hint="See the built-in skins.")
    return data
