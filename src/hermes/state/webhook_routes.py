"""Webhook routes that were added at run time, as a file in the home.

`webhook_subscriptions.json` maps names to routes. It holds secrets, so only
its owner can read it. One process at a time changes it, and it is replaced as
a whole. Fields that this version does not know are kept.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from hermes.config.atomic import editing, file_stamp, read_json, write_json
from hermes.config.paths import HermesHome

Routes = dict[str, dict[str, Any]]


class HookRouteFile:
    def __init__(self, home: HermesHome) -> None:
        self._home = home
        self._path = home.webhooks_file

    async def stamp(self) -> object:
        """Return a value that differs after a change."""
        return await asyncio.to_thread(file_stamp, self._path)

    async def load(self) -> Mapping[str, Mapping[str, Any]]:
        return await asyncio.to_thread(self.read)

    def read(self) -> Routes:
        return read_json(self._path, Routes)

    def change(self, edit: Callable[[Routes], Routes]) -> None:
        """Replace the routes by what `edit` makes of them while nobody else can."""
        with editing(self._home):
            write_json(self._path, edit(self.read()))
