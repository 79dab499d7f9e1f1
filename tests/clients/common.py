"""What the Python programs of the matrix share: they play cases and print a line for each."""

import asyncio
import inspect
import json
import os
import sys
import traceback

from pydantic import BaseModel

URL = os.environ["HERMES_URL"] + "/v1"
KEY = os.environ["HERMES_KEY"]
ASKS = "I need your consent to run this: answer yes or no."
HELLO = "Hello from the agent."
FOUND = "I looked."
SUNNY = "Sunny in Rome."
CLEAN = "It is clean."


class Person(BaseModel):
    name: str
    age: int


ADA = Person(name="Ada", age=36)


def same(found, wanted):
    if isinstance(wanted, BaseModel):
        found, wanted = found.model_dump(), wanted.model_dump()
    assert found == wanted, f"{found!r} is not {wanted!r}"


def fails(kind, word=""):
    """Return a context that wants an exception of this kind which mentions the word."""

    class Wanted:
        def __enter__(self):
            return self

        def __exit__(self, found, error, trace):
            assert found is not None, "no exception"
            if issubclass(found, kind):
                assert word in str(error), str(error)
                return True
            return False

    return Wanted()


def play(cases):
    """Run the cases of a program: functions, or coroutine functions, by name."""

    async def all_of_them():
        for name, case in cases.items():
            try:
                made = case()
                if inspect.isawaitable(made):
                    async with asyncio.timeout(30):
                        await made
                said = None
            except Exception:  # noqa: BLE001 - the case has failed, whatever it is
                said = traceback.format_exc()
            sys.stdout.write(json.dumps({"case": name, "failed": said}) + "\n")

    asyncio.run(all_of_them())
    sys.stdout.flush()
    os._exit(0)  # some libraries leave threads that wait for their telemetry
