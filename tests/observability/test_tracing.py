import subprocess
import sys
from pathlib import Path

import pytest

from hermes.observability.tracing import span

FAKE = """
from contextlib import contextmanager

class Span:
    def set_attribute(self, name, value):
        print("set", name, value)

class Tracer:
    @contextmanager
    def start_as_current_span(self, name, attributes):
        print("start", name, attributes)
        try:
            yield Span()
        except Exception as error:
            print("error", error)
            raise
        finally:
            print("end", name)

def get_tracer(name):
    return Tracer()
"""

USE = """
from hermes.observability.tracing import span
try:
    with span("model.call", provider="x") as s:
        s.set("tokens", 3)
        raise ValueError("lost")
except ValueError:
    print("went on")
"""


def test_without_opentelemetry_a_span_does_nothing_and_hides_nothing() -> None:
    with span("a", b=1) as first:
        first.set("c", "d")
    with pytest.raises(ValueError, match="x"), span("a"):
        raise ValueError("x")


def test_with_opentelemetry_spans_are_recorded(tmp_path: Path) -> None:
    package = tmp_path / "opentelemetry"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "trace.py").write_text(FAKE)
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{USE}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert done.stdout.splitlines() == [
        "start model.call {'provider': 'x'}",
        "set tokens 3",
        "error lost",
        "end model.call",
        "went on",
    ]
