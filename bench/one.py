"""Runs a single bench in this process: `python -m bench.one NAME FOLDER [quick]`.

The figures go to stdout as one line of JSON, after anything the bench prints.
"""

import asyncio
import sys
from importlib import import_module
from pathlib import Path

import msgspec

from bench.harness import Figure, Job

__all__: list[str] = []


def main() -> None:
    """Run the bench named on the command line."""
    name, folder, *rest = sys.argv[1:]
    job = Job(folder=Path(folder), quick="quick" in rest)
    figures: list[Figure] = asyncio.run(import_module(f"bench.{name}").run(job))
    print(msgspec.json.encode(figures).decode())


if __name__ == "__main__":
    main()
