"""The reference pages say what the code does."""

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "scripts" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_pages_are_up_to_date() -> None:
    made = generator()
    pages = {
        "cli.md": made.cli_reference(),
        "config.md": made.config_reference(),
        "tools.md": made.tools_reference(),
    }
    for name, text in pages.items():
        written = (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")
        assert written == text, f"run: python scripts/reference.py ({name} is out of date)"
