"""Doors that wait for requests: the API server and the webhook receiver."""

import asyncio
import logging
from collections.abc import Sequence

from hermes.control.approvals import ApprovalAnswers
from hermes.control.door import Door
from hermes.control.runs.runs import PLATFORM, Runs
from hermes.control.supervision.services import BackgroundWork
from hermes.control.supervision.supervisor import AdapterHealth, AdapterState
from hermes.control.webhooks.receiver import PLATFORM as WEBHOOK
from hermes.control.webhooks.receiver import WebhookReceiver
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.ledger import Ledger
from hermes.entry.http.api.consent import hand_in_left
from hermes.entry.http.api.responses import forget_unstored
from hermes.entry.http.server import HttpServer

log = logging.getLogger(__name__)

FORGET_EVERY_SECONDS = 3600.0


class ListeningDoor(Door):
    greeting = "listening at http://%s"

    def __init__(
        self, name: str, server: HttpServer, clock: Clock, group: asyncio.TaskGroup
    ) -> None:
        self.name = name
        self.platforms = (name,)
        self._server = server
        self._clock = clock
        self._group = group
        self._serving: asyncio.Task[None] | None = None
        self._since = clock.now()

    async def open(self) -> None:
        await self._server.bind()
        self._serving = self._group.create_task(self._server.run(), name=self.name)
        await self._server.started.wait()
        self._since = self._clock.now()
        log.info(self.greeting, self._server.address)

    def stop_listening(self) -> None:
        if self._serving is not None:
            self._serving.cancel()

    async def close(self, seconds: float) -> None:
        """Stop listening; answers under way get their time."""
        self.stop_listening()
        if self._serving is not None:
            await asyncio.wait([self._serving], timeout=seconds + self._server.grace_seconds)
        await super().close(seconds)

    def health(self) -> Sequence[AdapterHealth]:
        serving = self._serving is not None and not self._serving.done()
        idle = AdapterState.CONNECTING if self._serving is None else AdapterState.STOPPED
        health = AdapterHealth(
            name=self.name,
            state=AdapterState.CONNECTED if serving else idle,
            since=self._since,
            account=self._server.address,
            last_alive=self._clock.now() if serving else None,
        )
        return (health,)


class ApiDoor(ListeningDoor):
    greeting = "the API is at http://%s/v1"

    def __init__(
        self,
        server: HttpServer,
        runs: Runs,
        ledger: Ledger,
        clock: Clock,
        group: asyncio.TaskGroup,
        answers: ApprovalAnswers,
    ) -> None:
        super().__init__(PLATFORM, server, clock, group)
        self.follower = self._runs = runs
        self._ledger = ledger
        self._answers = answers

    def services(self) -> Sequence[BackgroundWork]:
        return (self._runs.keep_tidy, self._keep_forgetting)

    async def _keep_forgetting(self) -> None:
        """Hand in what a crash left; now and then delete responses that nobody wants stored."""
        await hand_in_left(self._ledger, self._answers)
        await forget_unstored(self._ledger, self._clock.now(), at_start=True)
        while True:
            await forget_unstored(self._ledger, self._clock.now())
            await self._clock.sleep(FORGET_EVERY_SECONDS)

    async def close(self, seconds: float) -> None:
        """Let go of the runs, whose readers then end, and stop listening."""
        await self._runs.close(seconds)
        await super().close(seconds)


class WebhookDoor(ListeningDoor):
    greeting = "webhooks are taken at http://%s/webhooks/<route>"

    def __init__(
        self, server: HttpServer, receiver: WebhookReceiver, clock: Clock, group: asyncio.TaskGroup
    ) -> None:
        super().__init__(WEBHOOK, server, clock, group)
        self.follower = self._receiver = receiver

    def drain(self) -> None:
        """Refuse what comes: senders try again later."""
        self._receiver.draining = True
