"""The end of a gateway: running turns get their time, unless somebody is in a hurry."""

import asyncio
import logging

from hermes.app.signals import StopSignals
from hermes.control.gateway import Gateway

__all__ = ["let_turns_end"]

log = logging.getLogger(__name__)


async def let_turns_end(gateway: Gateway, stop: StopSignals, patience: float) -> None:
    """Wait until no turn runs, so many seconds at most; a second signal ends the wait."""
    waits = [
        asyncio.ensure_future(gateway.drained()),
        asyncio.ensure_future(stop.at_once.wait()),
    ]
    try:
        await asyncio.wait(waits, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()
    if gateway.live_sessions:
        log.info("%d sessions are kept for the next start", gateway.live_sessions)
