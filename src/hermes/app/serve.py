"""`hermes gateway run`: the doors that are switched on, served until a signal ends it.

instance lock -> app (ledger, core, gateway) -> doors -> recover what was cut off
-> open the doors -> wait for a signal -> drain -> close
"""

import asyncio
import contextlib
import gc
import itertools
import logging
import sys
import time
from functools import partial
from importlib import import_module
from typing import Any

import msgspec

from hermes.app.build import App, open_app
from hermes.app.config_watch import ConfigWatcher, changed_variables
from hermes.app.doors import DoorContext, check_doors, check_enabled, open_doors
from hermes.app.doubts import config_doubts
from hermes.app.options import AppOptions
from hermes.app.platforms import idle_settings
from hermes.app.settings import in_force
from hermes.app.shutdown import StopSignals, let_turns_end, stop_signals
from hermes.app.tools import POLICY
from hermes.app.watchdog import watchdog
from hermes.config.loader import LoadedConfig, load_config
from hermes.control.admission.authz import ACCESS_KEYS
from hermes.control.admission.routing import Router
from hermes.control.commands.wording import count
from hermes.control.hook_files import load_hooks
from hermes.control.hooks import GATEWAY_STARTUP, HookBus, load_hook_plugins
from hermes.control.lanes.notices import tell_of_restart
from hermes.control.runs.runs import PLATFORM as API
from hermes.control.supervision.health import GatewayPhase, StateFile
from hermes.control.supervision.instance import (
    end_gateway,
    hold_home,
    is_supervised,
    starts_too_often,
)
from hermes.control.supervision.metrics import TurnMetrics
from hermes.control.supervision.services import BackgroundWork, keep_running
from hermes.control.supervision.supervisor import AdapterState
from hermes.domain.errors import ConfigError, HermesError
from hermes.domain.platforms import platforms
from hermes.entry.chat.kit.settings import ChatSettings
from hermes.entry.http.settings import KeyRefused
from hermes.execution.clock import SystemClock
from hermes.observability.metrics import Registry

log = logging.getLogger(__name__)

CLOSE_SECONDS = 5.0
START_AGAIN = -1
"""In place of an exit code: the process is to begin again as it was started."""
RECOVER_EVERY_SECONDS = 60.0
WARMED_AGENTS = 5
LATER_SECONDS = 2.0
LIVE_EXTRAS = ACCESS_KEYS | {"key", "keys"} | {*ChatSettings.__struct_fields__}
"""What is read again of `platforms.<name>.extra`: rules of chats, and the keys of the API."""


def check_serving(options: AppOptions) -> LoadedConfig:
    """Raise `ConfigError` if a gateway could not start with the configuration as it is now."""
    loaded = load_config(options.home, options.environ)
    check_doors(loaded, options)
    return loaded


async def serve(options: AppOptions, *, replace: bool = False) -> int:
    """Run the gateway until a signal ends it; return the exit code."""
    loaded = check_serving(options)
    if replace:
        await end_gateway(options.home.root, SystemClock())
    else:
        options = msgspec.structs.replace(options, loaded=loaded)
    supervised = is_supervised(options.environ)
    with hold_home(options.home.root, sys.argv, supervised=supervised), stop_signals() as stop:
        async with open_app(options) as app:
            with watchdog(app.owner.stall_path):
                await Service(app, stop).run()
    # Where nobody would start it again, the command does: see `cli.commands.gateway`.
    return START_AGAIN if stop.reason == "/restart" and not supervised else stop.exit_code


class Service:
    def __init__(self, app: App, stop: StopSignals) -> None:
        self._app = app
        self._options = options = app.options
        self._stop = stop
        self._started = app.loaded
        self._adopted: dict[str, Any] = {}
        """Settings of platforms that were taken over while these were not connected."""
        self._hooks = HookBus()
        self._doors = app.gateway.doors
        self._state_file = StateFile(
            options.home.root / "gateway_state.json",
            app.clock,
            argv=tuple(sys.argv),
            profiles=lambda: tuple(app.profiles),
            active=lambda: app.gateway.live_sessions,
            adapters=self._doors.health,
        )

    async def run(self) -> None:
        warnings = await asyncio.to_thread(load_hooks, self._options.home, self._hooks)
        plugins = await asyncio.to_thread(load_hook_plugins, self._app.loaded.config, self._hooks)
        self._tell_of_agents()
        idle = (*self._app.loaded.unused, *idle_settings(self._app.loaded))
        doubts = config_doubts(self._app.loaded, self._options.home)
        for warning in dict.fromkeys((*idle, *doubts, *warnings, *plugins)):
            log.warning("%s", warning)
        missed = [f"{who} does not run: {why}" for who, why in self._hooks.missing.items()]
        if missed:
            end = "Messages that no route is about are refused."
            self._state_file.warn("hooks", " ".join([*missed, end]))
        metrics = Registry()
        async with asyncio.TaskGroup() as group:
            context = DoorContext(
                app=self._app,
                group=group,
                hooks=self._hooks,
                state_file=self._state_file,
                metrics=metrics,
                router=Router(
                    self._app.settings.general,
                    lambda: self._app.profiles.served,
                    self._hooks.select_agent,
                ),
                restart=partial(self._stop.start_again, "/restart"),
            )
            counted = self._doors.watching(TurnMetrics(metrics, self._app.clock).on_turn)
            with counted, self._doors.attached(*open_doors(context)):
                clock = self._app.clock
                services = [
                    group.create_task(keep_running(each, clock)) for each in self._services()
                ]
                refused = await self._start()
                if refused is not None:
                    self._stop.stop(refused.message)
                await self._stop.asked.wait()
                await self._wind_down(services)
        if refused is not None:
            raise refused

    def _services(self) -> list[BackgroundWork]:
        own: list[BackgroundWork] = [self._state_file.run, self._hooks.run, self._watch_config]
        own += [self._keep_recovering, self._warm]
        return own + [service for door in self._doors for service in door.services()]

    async def _warm(self) -> None:
        """Load what the first message would otherwise wait for."""
        app = self._app
        try:
            # Others are made ready by their first message: there may be hundreds.
            for profile in itertools.islice(app.profiles.values(), WARMED_AGENTS):
                for platform in self._doors.platforms:
                    app.tools.registry(profile, platform)
                await app.models.warm(profile)
        except HermesError as error:
            # Whoever talks to the agent is told; until then it is nobody's trouble.
            log.info("the model was not loaded beforehand: %s", error.message)
        await app.clock.sleep(LATER_SECONDS)
        # Tool calls come later, and this takes a while: beside everything else.
        await asyncio.to_thread(import_module, POLICY)
        gc.collect()
        gc.freeze()  # what is there now stays, and is no longer looked through

    async def _keep_recovering(self) -> None:
        while True:
            await self._app.clock.sleep(RECOVER_EVERY_SECONDS)
            await self._recover()
            await self._app.tools.servers.keep(self._app.profiles.served)

    async def _recover(self) -> None:
        """Resume everything no live process owns, and finish what has ended meanwhile."""
        for door in self._doors:
            await door.recover()
        resumed = await self._app.gateway.recover(platforms=self._doors.platforms)
        for door in self._doors:
            await door.recover()
        if resumed:
            log.info("resumed: %s", count(len(resumed), "interrupted turn"))

    async def _start(self) -> HermesError | None:
        """Pick up what an earlier process left, then open the doors.

        Returns why this configuration cannot work, if no platform or not every listener can.
        """
        guard = self._options.home.root / "gateway" / "restart_loop.json"
        if await asyncio.to_thread(starts_too_often, guard, time.time()):
            # Nothing is held back for it: a turn that keeps ending the process is given up
            # after its second resume.
            text = "The gateway started several times in a minute; something may be stopping it."
            self._state_file.warn("restart_loop", text)
            log.error(text)
        await self._recover()
        await tell_of_restart(self._app.gateway)
        try:
            for door in self._doors:
                await door.open()
        except HermesError as error:
            return error
        healths = self._doors.health()
        if all(health.state is AdapterState.FATAL for health in healths):
            first = healths[0]
            return ConfigError(first.error or "No platform can be reached.", hint=first.hint or "")
        self._state_file.phase(GatewayPhase.RUNNING)
        await self._state_file.write()
        self._hooks.post(GATEWAY_STARTUP, {"platforms": sorted(self._doors.platforms)})
        return None

    async def _wind_down(self, services: list[asyncio.Task[None]]) -> None:
        """Take nothing new, let running turns end if there is time, keep the rest for later."""
        ending: dict[str, Any] = {"exit_reason": self._stop.reason, "restart": self._stop.restart}
        self._state_file.phase(GatewayPhase.DRAINING, **ending)
        # Before anything is awaited: what says it is not ready must not take anything either.
        gateway = self._app.gateway
        gateway.drain()
        for door in self._doors:
            door.drain()
        await self._state_file.write()
        await let_turns_end(gateway, self._stop, self._app.settings().agent.restart_drain_timeout)
        await gateway.suspend()
        for door in self._doors:
            await door.close(CLOSE_SECONDS)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._hooks.drained()
        for service in services:
            service.cancel()
        await asyncio.wait(services)
        self._state_file.phase(GatewayPhase.STOPPED, **ending)
        await self._state_file.write()

    # -- changes while running ---------------------------------------------------

    async def _watch_config(self) -> None:
        app, options = self._app, self._options
        watcher = ConfigWatcher(
            options.home,
            options.environ,
            self._started,
            app.clock,
            check=self._check,
        )
        watcher.watch_also(app.profiles.stamps)
        await watcher.run(self._apply, lambda text: self._state_file.warn("config", text))

    def _check(self, loaded: LoadedConfig) -> None:
        try:
            check_enabled(loaded, self._options)
        except KeyRefused as error:
            if API not in self._doors.platforms:
                raise
            # Taken over all the same: a key that was replaced must not open the door any more.
            log.warning("%s %s", error.message, error.hint)

    def _apply(self, loaded: LoadedConfig) -> None:
        self._app.loaded = loaded
        self._app.redactor.learn(loaded.secrets)
        waiting = self._app.settings.update(in_force(loaded.config, self._options))
        self._app.profiles.update(loaded, self._app.settings.general())
        self._tell_of_agents()
        waiting |= changed_variables(self._started.variables, loaded.variables)
        named = ", ".join(sorted(key for key in waiting if not self._read_again(key)))
        for door in self._doors:
            door.configured()
        if named:
            log.warning("the configuration changed; used only after a restart: %s", named)
        self._state_file.warn(
            "restart", f"Changed, but used only after a restart: {named}" if named else None
        )

    def _tell_of_agents(self) -> None:
        problems = self._app.profiles.warnings()
        self._state_file.warn("agents", "; ".join(problems) or None)

    def _read_again(self, key: str) -> bool:
        """Tell whether a setting of a platform counts at once: it is live, or was not in use."""
        if "." in key and not key.startswith("platforms."):
            return False
        platform, _, name = key.removeprefix("platforms.").partition("." if "." in key else "_")
        if name.rpartition(".")[2].lower() in LIVE_EXTRAS or self._new_account(platform, name):
            return True
        states = {h.name: h.state for h in self._doors.health()}
        value = _value(self._app.loaded, key)
        if key in _credentials() or (
            states.get(platform.lower(), AdapterState.CONNECTED) is not AdapterState.CONNECTED
        ):
            # Its adapter connects again with what is there now.
            self._adopted[key] = value
        return key in self._adopted and bool(self._adopted[key] == value)

    def _new_account(self, platform: str, key: str) -> bool:
        """Tell whether a setting is that of an account that came or went."""
        path = key.split(".")
        if path[:2] != ["extra", "accounts"] or platform not in self._doors.platforms:
            return False
        known = _value(self._started, f"platforms.{platform}.extra.accounts") or {}
        now = _value(self._app.loaded, f"platforms.{platform}.extra.accounts") or {}
        return len(path) == 2 or (path[2] in known) != (path[2] in now)


def _credentials() -> set[str]:
    """Return how the credentials of platforms are called in the files."""
    found = [(name, each) for name, p in platforms().items() for each in p.credentials]
    return {s for name, each in found for s in (each.variable, f"platforms.{name}.{each.key}")}


def _value(loaded: LoadedConfig, key: str) -> Any:
    """Return what the files say now about a variable or a dotted key."""
    if key in loaded.variables:
        return loaded.variables[key]
    found: Any = msgspec.to_builtins(loaded.config)
    for name in key.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found
