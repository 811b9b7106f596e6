"""The agent counts applications' faults, tells whose they are, and takes no GPU out for them."""

from agent.cluster.repairentries import fault_entries
from agent.health.culprits import Culprit
from tests.support.agent.node import EAGER, GPU, Lab, fleet

XID = 31


def counted(lab: Lab) -> dict[int, tuple[int, Culprit]]:
    index = {gpu.uuid: gpu.index for gpu in lab.report().node.gpus}
    return {index[each.gpu]: (each.count, each.culprit) for each in lab.report().application_faults}


async def hold(lab: Lab, pod: str, count: int = 1) -> list[int]:
    """The indexes of the GPUs that the pod was given."""
    grant = await lab.kubelet.allocate(GPU, count, pod=pod)
    await lab.shown()
    index = {gpu.uuid: gpu.index for gpu in lab.report().node.gpus}
    return sorted(index[device] for device in grant.devices)  # type: ignore[index] # whole GPUs


async def test_a_program_with_the_same_fault_on_two_gpus_is_at_fault_and_no_gpu_leaves(lab: Lab) -> None:
    endpoint = await lab.serve(fleet(2))
    one, other = await hold(lab, "train", 2)
    lab.sim(gpu=one, xid=XID)
    lab.sim(gpu=other, xid=XID)
    await lab.until(lambda: counted(lab) == dict.fromkeys((one, other), (1, Culprit.PROGRAM)))
    assert [(reason, text) for reason, _, text in lab.reporter.warnings if reason == "ProgramAtFault"] == [
        ("ProgramAtFault", "XID 31 came on 2 GPUs under default/train: the program is at fault, not the GPUs")
    ]
    assert len(endpoint.healthy) == 2
    assert lab.report().repairs == ()


async def test_a_gpu_on_which_two_programs_fail_that_fail_nowhere_else_is_suspect(lab: Lab) -> None:
    await lab.serve(fleet(1))
    for pod in ("one", "other"):
        await hold(lab, pod)
        lab.sim(gpu=0, xid=XID)
        await lab.until(lambda: lab.report().application_faults[-1:] != (), "the fault is counted")
        await lab.until(lambda pod=pod: f"default/{pod}" in lab.report().application_faults[-1].programs)  # type: ignore[misc]
        lab.kubelet.delete(pod)
        await lab.look_again()
    assert counted(lab) == {0: (2, Culprit.GPU)}
    (text,) = [text for reason, _, text in lab.reporter.warnings if reason == "GpuSuspect"]
    assert "under default/one, default/other, and under none of them on another GPU" in text
    assert lab.report().health[0].state == "Healthy"


async def test_counts_outlive_the_agent_and_reach_the_gpunode(lab: Lab) -> None:
    await lab.serve(fleet(1))
    lab.sim(gpu=0, xid=XID)
    await lab.until(lambda: counted(lab) == {0: (1, Culprit.UNKNOWN)})
    await lab.restart(EAGER)
    await lab.listed()
    (entry,) = fault_entries(lab.agent.node_state.culprits.counts())
    assert (entry.gpu, entry.xid, entry.count, entry.culprit) == (lab.uuid(0), XID, 1, "")
