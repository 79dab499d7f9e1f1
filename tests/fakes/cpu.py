"""How much processor time something takes, told as steadily as that can be."""

import gc
import time
from collections.abc import Callable


def least_cpu(work: Callable[[], object], rounds: int = 3) -> float:
    """Return the processor seconds of the quickest of several rounds, at least a millisecond.

    The collector rests meanwhile: what other tests have left in memory is not what is measured.
    """
    taken = []
    gc.disable()
    try:
        for _ in range(rounds):
            began = time.process_time()
            work()
            taken.append(time.process_time() - began)
    finally:
        gc.enable()
    return max(min(taken), 0.001)
