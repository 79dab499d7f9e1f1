"""The example passes the conformance suite, on a real server."""

import pytest
from irc_driver import NGIRCD, IrcDriver

from hermes.testing.conformance import Conformance


@pytest.mark.skipif(NGIRCD is None, reason="ngircd is not installed")
@pytest.mark.timeout(150)
class TestIrc(Conformance):
    driver = IrcDriver
