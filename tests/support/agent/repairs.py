"""What a kubelet and a person come to see of repairs by the agent alone."""

from agent.health.repairstate import Repair, RepairState
from tests.support.agent.node import EAGER, Lab

H100 = "NVIDIA H100 80GB HBM3"
ON = EAGER + "remediation: {reset: when-free}\n"
MIG = "nvidia.com/mig-3g.40gb"
CUT = ON + "layout:\n- {gpus: [0], mode: mig, profiles: [3g.40gb, 3g.40gb], whenBusy: wait}\n"


def resets(lab: Lab, index: int) -> int:
    return lab.simulation.hardware.gpus[index].epoch - 1


def repair(lab: Lab, index: int) -> Repair | None:
    return next((one for one in lab.report().repairs if one.gpu == lab.uuid(index)), None)


def state(lab: Lab, index: int) -> RepairState | None:
    found = repair(lab, index)
    return None if found is None else found.state


def count(lab: Lab, step: str, result: str) -> float:
    figures = lab.agent.metrics._figures.values("tessera_gpu_repairs_total")
    return figures.get((step, result), 0.0)


async def returned(lab: Lab, index: int) -> None:
    await lab.until(lambda: count(lab, "return", "returned") > 0 and not lab.down(), f"GPU {index} is not back")
