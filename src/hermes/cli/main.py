"""The `hermes` command.

`--version` answers before anything is imported. Every other command lives in
a module of its own that is imported only when it is called, so `--help` and
completion stay quick and a broken optional dependency cannot break the rest.
"""

import gc
import sys

from hermes import __version__


def main() -> None:
    if sys.argv[1:] in (["--version"], ["-V"]):
        sys.stdout.write(f"hermes {__version__}\n")
        return
    gc.disable()  # while modules are loaded: they stay, and looking through them takes a while
    from hermes.cli.root import run  # noqa: PLC0415 - everything else costs time to import

    run()
