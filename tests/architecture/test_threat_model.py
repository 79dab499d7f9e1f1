"""Each claim of the threat model names a test, and the test is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_NAMED = re.compile(r"`([\w/]+\.py)(?:::(\w+))?`")


def test_every_test_that_the_threat_model_names_exists() -> None:
    named = _NAMED.findall((ROOT / "docs/threat-model.md").read_text(encoding="utf-8"))
    assert len(named) > 30
    for path, name in named:
        file = ROOT / "tests" / path
        assert file.exists(), path
        assert not name or f"def {name}(" in file.read_text(encoding="utf-8"), f"{path}::{name}"
