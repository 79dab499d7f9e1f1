"""The one place that looks at the process environment.

Everything else receives a mapping, so tests and embedding programs decide
what Hermes sees.
"""

import os
from collections.abc import Mapping

__all__ = ["process_environ"]


def process_environ() -> Mapping[str, str]:
    """Return a copy of the environment this process was started with."""
    return dict(os.environ)
