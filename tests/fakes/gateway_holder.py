"""A process that is the gateway of a home, as stubborn as a test wants it.

    python -m fakes.gateway_holder HOME [polite|stubborn]

Prints `ready` when it holds the home. A polite one ends with SIGTERM, and with
exit code 75 on SIGUSR1; a stubborn one ignores SIGTERM.
"""

import signal
import sys
from pathlib import Path

from hermes.control.supervision.instance import hold_home

RESTART = 75


def main() -> int:
    """Hold the home until told to stop."""
    root, manner = Path(sys.argv[1]), sys.argv[2]
    signals = {signal.SIGTERM, signal.SIGUSR1}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    with hold_home(root, sys.argv):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            number = signal.sigwait(signals)
            if number == signal.SIGUSR1:
                return RESTART
            if manner == "polite":
                return 0


if __name__ == "__main__":
    sys.exit(main())
