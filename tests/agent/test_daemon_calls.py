"""Every call of NVML fails in its turn, with an error of its own: one GPU's trouble is its own, and it passes."""

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import cycle
from typing import Final

import pytest

from agent.hardware import monitor
from hack.chaos.faults.nvmlcalls import ALL, CODES, NO_DRIVER, NVML_CALLS, RESETS
from simulator.nvml.session import Session
from tests.support.agent.node import EAGER, Lab, fleet

GPUS: Final = 8
WELL: Final = 0
"""No call fails on it."""
OF_NODE: Final = tuple(
    call
    for call in NVML_CALLS
    if call.startswith(("nvmlInit", "nvmlShutdown", "nvmlSystem", "nvmlEventSet", "nvmlGpmSampleAlloc"))
    or call in ("nvmlDeviceGetCount", "nvmlDeviceGetHandleByUUID", "nvmlGpmSampleFree", "nvmlGpmMetricsGet")
)
"""Those that name no GPU."""
AT_START: Final = tuple(call for call in OF_NODE if not re.search("Gpm|Free|UUID|Shutdown|NVMLVersion", call))
OF_GPU: Final = tuple(call for call in NVML_CALLS if call not in (*OF_NODE, ALL))
MADE: Final = 35
"""So many this node makes when nothing is changed. Others are for changes of layouts, other boards, old drivers."""
MIXED: Final = EAGER + "flags: {migStrategy: mixed}\n"
ON_H100: Final = "NVIDIA H100 80GB HBM3"
CUT: Final = "  migEnabled: [1, 2, 3]\n  mig: {1: [3g.40gb], 2: [3g.40gb], 3: [3g.40gb]}\n"


@pytest.fixture
def failed(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of the calls that were made while they failed."""
    found: set[str] = set()
    fail = Session._fail

    def noted(self: Session, call: str, gpu: int | None) -> None:
        try:
            fail(self, call, gpu)
        except Exception:
            found.add(call)
            raise

    monkeypatch.setattr(Session, "_fail", noted)
    monkeypatch.setattr(monitor, "RESCAN_S", 0.1)
    return found


def turns(calls: Sequence[str], errors: Collection[str]) -> Iterator[tuple[str, str]]:
    """Each call with an error, so that neighbours have different ones."""
    return zip(calls, cycle(errors), strict=False)


def begin(lab: Lab, call: str, error: str, **where: int) -> None:
    lab.sim(**where, fail={"call": call, "code": CODES[error]})


def end(lab: Lab, call: str, error: str, *gpus: int, **where: int) -> None:
    lab.sim(**where, fail={"call": call, "code": 0})
    for gpu in gpus if error in RESETS else ():
        lab.sim(gpu=gpu, reset=True)


async def test_a_call_that_fails_on_one_gpu_changes_no_other_and_the_gpu_is_back_after_it(
    lab: Lab, failed: set[str]
) -> None:
    await lab.serve(fleet(GPUS, ON_H100, CUT), MIXED)
    left = list(turns(OF_GPU, [error for error in CODES if error not in NO_DRIVER]))
    while left:
        now, left = left[: GPUS - 1], left[GPUS - 1 :]
        for gpu, (call, error) in enumerate(now, start=1):
            begin(lab, call, error, gpu=gpu)
        await lab.restart(MIXED)
        await lab.look_again()
        await lab.agent.sampler.sample(lab.agent.monitor)
        for gpu, (call, error) in enumerate(now, start=1):
            end(lab, call, error, gpu, gpu=gpu)
        for gpu in range(GPUS):
            await lab.restored(gpu)
    assert not [change for change in lab.reporter.transitions if change.gpu == lab.uuid(WELL)]
    assert len(failed & set(OF_GPU)) >= MADE


async def test_a_call_that_fails_on_all_gpus_is_over_when_it_is(lab: Lab, failed: set[str]) -> None:
    await lab.serve(fleet(2))
    for call, error in turns(AT_START, CODES):
        begin(lab, call, error)
        await lab.restart()
        await lab.until(lambda call=call: call in failed, call)  # type: ignore[misc]
        end(lab, call, error, 0, 1)
        for gpu in range(2):
            await lab.restored(gpu)
