"""`hermes gateway run`: the chat platforms, put together and looked after.

instance lock -> app (ledger, core, gateway) -> fleet of adapters
-> recover what was cut off -> wait for a signal -> wind down
"""

import asyncio
import contextlib
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from hermes import __version__
from hermes.app.access import access_settings
from hermes.app.build import App, ChatWiring, open_app
from hermes.app.config_watch import ConfigChange, ConfigWatcher
from hermes.app.controls import AppControls
from hermes.app.doors import DoorContext, ListeningDoor, check_doors, open_doors
from hermes.app.hook_files import load_hooks
from hermes.app.options import AppOptions
from hermes.app.outgoing_files import allowed_files
from hermes.app.platforms import PlatformKit, batch_window, enabled_platforms, presentation
from hermes.app.plugins import load_hook_plugins
from hermes.app.serve_context import ChatContext
from hermes.app.shutdown import StopSignals, let_turns_end, stop_signals
from hermes.config.loader import load_config
from hermes.control.admission.authz import Authorizer, AuthzSettings
from hermes.control.admission.pairing import Pairing
from hermes.control.admission.pipeline import InboundPipeline, PipelineParts, target_of
from hermes.control.admission.resets import Resets, reset_rules
from hermes.control.commands.builtin import builtin_registry
from hermes.control.commands.context import CommandHost
from hermes.control.delivery.outage_notices import Apologies
from hermes.control.delivery.progress_notices import Patience
from hermes.control.delivery.rate_limit import PacerBook
from hermes.control.delivery.surface import Delivery, Line
from hermes.control.hooks import GATEWAY_STARTUP, HookBus
from hermes.control.lanes.busy_modes import BusyMode
from hermes.control.supervision.health import GatewayPhase, HealthBoard
from hermes.control.supervision.instance import (
    Instance,
    end_gateway,
    is_supervised,
    starts_too_often,
)
from hermes.control.supervision.liveness import AdapterHealth, AdapterState
from hermes.control.supervision.supervisor import AdapterPlan, Fleet, Supervisor, SupervisorSettings
from hermes.domain.errors import ConfigError, HermesError
from hermes.domain.inbound import InboundMessage, InboxEntry
from hermes.domain.ports.platform import Adapter, InboundSink
from hermes.domain.turn import Turn
from hermes.entry.chat.companion import Manners
from hermes.entry.chat.door import ChatDoor, DoorParts
from hermes.execution.clock import SystemClock
from hermes.state.pairing import PairingFiles

__all__ = ["check_serving", "serve"]

log = logging.getLogger(__name__)

WIND_DOWN_SECONDS = 5.0
LOOK_AGAIN_SECONDS = 60.0


def check_serving(options: AppOptions) -> None:
    """Raise `ConfigError` if a gateway could not start with the configuration as it is now."""
    loaded = load_config(options.home, options.environ)
    enabled_platforms(loaded, options, SystemClock())
    check_doors(loaded, options)


async def serve(options: AppOptions, *, replace: bool = False) -> int:
    """Run the gateway until a signal ends it; return the exit code."""
    clock = SystemClock()
    loaded = load_config(options.home, options.environ)
    kits = enabled_platforms(loaded, options, clock)
    check_doors(loaded, options)
    if replace:
        await end_gateway(options.home.root, clock)
    context = ChatContext(loaded, kits)
    wiring = ChatWiring(
        windows={kit.manifest.name: batch_window(kit.manifest) for kit in kits},
        ephemeral=context.ephemeral,
    )
    supervised = is_supervised(options.environ)
    with Instance.claim(options.home.root, sys.argv, supervised=supervised), stop_signals() as stop:
        async with open_app(options, wiring) as app:
            context.use(app.ledger)
            await _Service(app, options, kits, stop).run()
    return stop.exit_code


class _Service:
    """One run of the gateway."""

    def __init__(
        self, app: App, options: AppOptions, kits: list[PlatformKit], stop: StopSignals
    ) -> None:
        self._app = app
        self._options = options
        self._kits = {kit.manifest.name: kit for kit in kits}
        self._stop = stop
        self._hooks = HookBus()
        self._pairing = Pairing(PairingFiles(options.home.platforms_dir / "pairing"), app.clock)
        self._authorizer = Authorizer(self._access(), paired=self._pairing.is_paired)
        self._book = PacerBook()
        settings = SupervisorSettings(
            connect_timeout=app.loaded.config.gateway.platform_connect_timeout
        )
        self._board = HealthBoard(
            options.home.root / "gateway_state.json",
            app.clock,
            argv=tuple(sys.argv),
            profiles=(app.profile.id,),
            active=lambda: app.gateway.live_sessions,
            adapters=self._health,
        )
        self._fleet = Fleet(
            [Supervisor(self._plan(kit), app.clock, settings, self._board.changed) for kit in kits]
        )
        self._doors: list[ListeningDoor] = []
        self._door: ChatDoor | None = None
        self._parts: PipelineParts | None = None

    async def run(self) -> None:
        """Serve until asked to stop."""
        warnings = await asyncio.to_thread(load_hooks, self._options.home, self._hooks)
        plugins = await asyncio.to_thread(load_hook_plugins, self._app.loaded.config, self._hooks)
        for warning in (*self._app.loaded.unused, *warnings, *plugins):
            log.warning("%s", warning)
        async with asyncio.TaskGroup() as group:
            self._door = self._make_door(group)
            self._parts = self._make_parts(group, self._door)
            self._doors = self._open_doors(group, self._door)
            with contextlib.ExitStack() as watching:
                for observer in (self._door.on_turn, *(door.on_turn for door in self._doors)):
                    watching.enter_context(self._app.gateway.watching(observer))
                services = [group.create_task(work) for work in self._services()]
                refused = await self._start()
                if refused is not None:
                    self._stop.stop(refused.message)
                await self._stop.asked.wait()
                await self._wind_down(self._door, services)
        if refused is not None:
            raise refused

    def _services(self) -> list[Coroutine[Any, Any, None]]:
        return [
            self._fleet.run(),
            self._board.run(),
            self._hooks.run(),
            self._watch_config(),
            self._look_again(),
            self._warm(),
            *(service for door in self._doors for service in door.services()),
        ]

    @property
    def _platforms(self) -> tuple[str, ...]:
        """Whose messages and turns are ours."""
        return (*self._kits, *(door.platform for door in self._doors))

    async def _warm(self) -> None:
        """Load what the first message would otherwise wait for."""
        app = self._app
        try:
            for platform in self._platforms:
                app.tools.registry(app.profile, platform)
            await app.models.warm(app.profile)
        except HermesError as error:
            # Whoever talks to the agent is told; until then it is nobody's trouble.
            log.info("nothing is loaded beforehand: %s", error.message)

    async def _look_again(self) -> None:
        """Now and then look for messages that could not be taken when they came."""
        while True:
            await self._app.clock.sleep(LOOK_AGAIN_SECONDS)
            try:
                await self._recover()
            except HermesError as error:
                log.warning("the inbox could not be looked through: %s", error.message)

    async def _recover(self) -> list[Turn]:
        """Have everything gone on with that nobody is at work on; return the turns."""
        for door in self._doors:
            await door.before_recovery()
        resumed = await self._app.gateway.recover(platforms=self._platforms)
        for door in self._doors:
            await door.after_recovery()
        return resumed

    async def _start(self) -> HermesError | None:
        """Pick up what an earlier process left, then say that we are there.

        Returns why this configuration cannot work, if no platform or not every listener can.
        """
        assert self._door is not None
        guard = self._options.home.root / "gateway" / "restart_loop.json"
        if await asyncio.to_thread(_too_often, guard):
            # Nothing is held back for it: a turn that keeps ending the process is given up
            # after its second resume.
            text = "Several starts in a short time: something may be ending the gateway."
            self._board.warn("restart_loop", text)
            log.error(text)
        shown = await self._door.deliver_unanswered()
        resumed = await self._recover()
        if shown or resumed:
            log.info("after the restart: %d answers shown, %d turns go on", shown, len(resumed))
        try:
            for door in self._doors:
                await door.listen()
        except HermesError as error:
            return error
        healths = await self._fleet.settled()
        dead = all(health.state is AdapterState.FATAL for health in healths)
        if dead and not self._doors:
            first = healths[0]
            return ConfigError(first.error or "No platform can be reached.", hint=first.hint or "")
        self._board.phase(GatewayPhase.RUNNING)
        await self._board.write()
        self._hooks.post(GATEWAY_STARTUP, {"platforms": sorted(self._platforms)})
        return None

    async def _wind_down(self, door: ChatDoor, services: list[asyncio.Task[None]]) -> None:
        """Take nothing new, let running turns end if there is time, keep the rest for later."""
        self._board.phase(
            GatewayPhase.DRAINING, exit_reason=self._stop.reason, restart=self._stop.restart
        )
        # Before anything is awaited: what says it is not ready must not take anything either.
        for each in self._doors:
            each.drain()
        await self._board.write()
        gateway = self._app.gateway
        patience = self._app.loaded.config.agent.restart_drain_timeout
        await let_turns_end(gateway, self._stop, patience)
        await gateway.suspend()
        for each in self._doors:
            await each.close(WIND_DOWN_SECONDS)
        await door.wind_down(WIND_DOWN_SECONDS)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WIND_DOWN_SECONDS):
                await self._hooks.drained()
        for service in services:
            service.cancel()
        await asyncio.wait(services)
        self._board.phase(
            GatewayPhase.STOPPED, exit_reason=self._stop.reason, restart=self._stop.restart
        )
        await self._board.write()

    # -- parts -----------------------------------------------------------------

    def _plan(self, kit: PlatformKit) -> AdapterPlan:
        return AdapterPlan(
            name=kit.manifest.name, make=kit.make, sink=self._sink_of(kit), hold=kit.hold()
        )

    def _sink_of(self, kit: PlatformKit) -> Callable[[Adapter], Awaitable[InboundSink]]:
        async def sink(adapter: Adapter) -> InboundSink:
            assert self._parts is not None
            names = {spec.name: spec.help for spec in self._parts.registry.specs(terminal=False)}
            await adapter.publish_commands(names)
            return InboundPipeline(
                self._parts, kit.manifest.name, adapter.account, alive=lambda: None
            )

        return sink

    def _open_doors(self, group: asyncio.TaskGroup, door: ChatDoor) -> list[ListeningDoor]:
        return open_doors(
            DoorContext(
                app=self._app,
                options=self._options,
                group=group,
                deliver=door.deliver,
                platforms=tuple(self._kits),
                board=self._board,
                adapters=self._health,
            )
        )

    def _make_door(self, group: asyncio.TaskGroup) -> ChatDoor:
        app = self._app
        return ChatDoor(
            DoorParts(
                ledger=app.ledger,
                delivery=Delivery(app.ledger, app.clock),
                clock=app.clock,
                group=group,
                line=self._line,
                platforms=tuple(self._kits),
                presentation={name: presentation(app.loaded.config, name) for name in self._kits},
                may_send=allowed_files(app.loaded.config, self._options),
                manners=self._manners(),
            )
        )

    def _manners(self) -> Manners:
        agent, gateway = self._app.loaded.config.agent, self._app.gateway
        return Manners(
            patience=Patience(
                notify=agent.gateway_notify_interval,
                warning=agent.gateway_timeout_warning,
                limit=agent.gateway_timeout,
            ),
            reactions=frozenset(name for name, kit in self._kits.items() if kit.reactions()),
            hooks=self._hooks,
            interrupt=lambda session_id, turn_id: gateway.interrupt(session_id, turn_id=turn_id),
        )

    def _make_parts(self, group: asyncio.TaskGroup, door: ChatDoor) -> PipelineParts:
        app, config = self._app, self._app.loaded.config
        rules = reset_rules(msgspec.to_builtins(config.session_reset), config.reset_triggers)
        zone = datetime.now().astimezone().tzinfo
        assert zone is not None
        return PipelineParts(
            host=CommandHost(
                ledger=app.ledger,
                gateway=app.gateway,
                desk=app.desk,
                controls=AppControls(app),
                clock=app.clock,
                profile=app.profile,
                version=__version__,
                saved_dir=self._options.home.sessions_dir / "saved",
                busy_default=BusyMode(config.display.busy_input_mode),
            ),
            registry=builtin_registry(),
            authorizer=self._authorizer,
            pairing=self._pairing,
            resets=Resets(rules, zone, app.environments.background_age),
            hooks=self._hooks,
            group=group,
            agent_of=self._agent_of,
            say=door.say,
            apologies=self._apologies(group, door),
            busy_default={
                name: BusyMode(shown.busy_input_mode)
                for name, shown in config.display.platforms.items()
                if shown.busy_input_mode
            },
        )

    def _apologies(self, group: asyncio.TaskGroup, door: ChatDoor) -> Apologies:
        apologies = Apologies(door.say_unrecorded, self._app.clock)

        def troubled(entry: InboxEntry, error: HermesError) -> None:
            if entry.message.platform in self._kits:
                group.create_task(apologies.say(target_of(entry.message), error))

        self._app.gateway.troubled = troubled
        return apologies

    def _agent_of(self, _message: InboundMessage) -> str:
        return self._app.profile.id

    def _line(self, platform: str, _account: str) -> Line | None:
        adapter, kit = self._fleet.adapter(platform), self._kits.get(platform)
        if adapter is None or kit is None:
            return None
        return Line(
            adapter=adapter,
            capabilities=kit.manifest.capabilities,
            book=self._book,
            sent=lambda: self._fleet.sent(platform),
        )

    def _health(self) -> list[AdapterHealth]:
        return [*self._fleet.health(), *(door.health() for door in self._doors)]

    def _access(self) -> dict[str, AuthzSettings]:
        manifests = [kit.manifest for kit in self._kits.values()]
        return access_settings(
            self._app.loaded, [(each.name, each.env_prefix) for each in manifests]
        )

    # -- changes while running ---------------------------------------------------

    async def _watch_config(self) -> None:
        app = self._app
        watcher = ConfigWatcher(self._options.home, self._options.environ, app.loaded, app.clock)
        await watcher.run(self._apply, lambda text: self._board.warn("config", text))

    def _apply(self, change: ConfigChange) -> None:
        self._app.loaded = change.loaded
        if "access" in change.safe:
            self._authorizer.update(self._access())
        waiting = ", ".join(sorted(change.needs_restart))
        text = f"Changed, but used only after a restart: {waiting}" if waiting else None
        self._board.warn("restart", text)


def _too_often(path: Path) -> bool:
    return starts_too_often(path, max_count=3, window_seconds=60.0, now=time.time())
