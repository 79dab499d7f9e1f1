"""What all tests share.

On CI property tests try the same examples every time, so that a red build
means a change for the worse; everywhere else they look for new ones.
"""

import os

from hypothesis import settings

settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")
