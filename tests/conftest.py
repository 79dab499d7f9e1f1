"""What all tests share.

Property tests try the same examples every time, so that a red run means a
change for the worse. `make soak` looks for new ones.
"""

import os

from hypothesis import settings

settings.register_profile("steady", derandomize=True)
if not os.environ.get("EXPLORE"):
    settings.load_profile("steady")
