"""From nothing to an answer: `--version` and one question, each a new process."""

import asyncio
import os
import sys
import time
from pathlib import Path

from msgspec import Struct

from bench.core import clean_environ, make_home
from bench.harness import Figure, Job, alternate, median
from bench.model_server import ANSWER, model_process, script
from fakes.model_script import Step

__all__ = ["run"]

ROOT = Path(__file__).resolve().parent.parent
PEAK = """
import atexit, sys
def tell():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM"):
            sys.stderr.write(line)
atexit.register(tell)
"""
"""Peak memory as the process itself sees it: a parent's view includes the fork."""
HERMES = "import sys; from hermes.cli.main import main; sys.argv[0] = 'hermes'; sys.exit(main())"


class Cost(Struct, frozen=True, kw_only=True):
    """What a process took."""

    wall_ms: float
    cpu_ms: float


async def run(job: Job) -> list[Figure]:
    rounds = job.pick(15, 2)
    async with model_process(script(Step(text=ANSWER))) as model:
        home = make_home(job.folder, model.base_url)
        environ = clean_environ(home) | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        start = _Starter(job.folder / "work", environ)
        hermes = [str(Path(sys.executable).with_name("hermes"))]
        bare = [sys.executable, "-m", "bench.bare", model.base_url]
        nothing = [sys.executable, "-c", "pass"]
        version = await start.compare(rounds, [*hermes, "--version"], nothing)
        question = ["chat", "-q", "hello"]
        oneshot = await start.compare(rounds, [*hermes, *question], bare)
        peaks = [
            await start.peak_mb(HERMES, "--version"),
            await start.peak_mb("pass"),
            await start.peak_mb(HERMES, *question),
            await start.peak_mb(
                "import runpy; runpy.run_module('bench.bare', run_name='__main__')", model.base_url
            ),
        ]
    return [
        _figure("version_wall", *version, cpu=False),
        Figure(key="version_peak", measured=peaks[0], baseline=peaks[1]),
        _figure("oneshot_wall", *oneshot, cpu=False),
        _figure("oneshot_cpu", *oneshot, cpu=True),
        Figure(key="oneshot_peak", measured=peaks[2], baseline=peaks[3]),
    ]


def _figure(key: str, subject: list[Cost], bare: list[Cost], *, cpu: bool) -> Figure:
    def middle(costs: list[Cost]) -> float:
        return median([cost.cpu_ms if cpu else cost.wall_ms for cost in costs])

    return Figure(key=key, measured=middle(subject), baseline=middle(bare))


class _Starter:
    """Starts processes and waits for them."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self._folder = folder
        self._environ = environ

    async def compare(
        self, rounds: int, subject: list[str], bare: list[str]
    ) -> tuple[list[Cost], list[Cost]]:
        costs: dict[str, list[Cost]] = {"subject": [], "bare": []}

        async def sample(which: str, command: list[str]) -> float:
            costs[which].append(await asyncio.to_thread(self._run, command))
            return 0.0

        await alternate(rounds, lambda: sample("subject", subject), lambda: sample("bare", bare))
        return costs["subject"][1:], costs["bare"][1:]

    def _run(self, command: list[str]) -> Cost:
        start = time.perf_counter()
        with Path(os.devnull).open("wb") as nowhere:
            fd = nowhere.fileno()
            pid = os.posix_spawn(
                command[0],
                command,
                self._environ,
                file_actions=[(os.POSIX_SPAWN_DUP2, fd, 1), (os.POSIX_SPAWN_DUP2, fd, 2)],
            )
            _, status, used = os.wait4(pid, 0)
        wall = time.perf_counter() - start
        if status:
            raise RuntimeError(f"{command} ended with status {status}")
        return Cost(wall_ms=wall * 1000, cpu_ms=(used.ru_utime + used.ru_stime) * 1000)

    async def peak_mb(self, code: str, *arguments: str) -> float:
        """Return the peak of a Python program, as it tells at its end."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            PEAK + code,
            *arguments,
            cwd=self._folder,
            env=self._environ,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        _, errors = await process.communicate()
        line = next(line for line in errors.decode().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
