"""Background services: one that fails is logged, waits a little and is begun again."""

import logging
from collections.abc import Callable, Coroutine
from typing import Any

from hermes.domain.errors import HermesError
from hermes.domain.ports.clock import Clock

log = logging.getLogger(__name__)

LONGEST_PAUSE = 60.0
QUIET_SECONDS = 600.0
"""After so long without a failure the pauses begin from the start."""

BackgroundWork = Callable[[], Coroutine[Any, Any, None]]


async def keep_running(service: BackgroundWork, clock: Clock) -> None:
    """Run `service` until it returns or this is cancelled."""
    pause = 1.0
    while True:
        begun = clock.monotonic()
        try:
            return await service()
        except HermesError as error:
            log.error("%s failed: %s", _name(service), error.message)
        except Exception:  # the boundary of a background service: it is started again
            log.exception("%s failed", _name(service))
        pause = 1.0 if clock.monotonic() - begun > QUIET_SECONDS else min(pause * 2, LONGEST_PAUSE)
        log.warning("%s is started again in %.0f s", _name(service), pause)
        await clock.sleep(pause)


def _name(service: BackgroundWork) -> str:
    return getattr(service, "__qualname__", repr(service))
