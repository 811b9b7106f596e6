"""What happens on a node while its agent is killed: pods, layouts, MPS daemons, claims, labels."""

import datetime as dt
from typing import Any, Final

from agent.cluster.gpunode import GPU_NODES
from agent.dra.claim import RESOURCE_CLAIMS
from agent.dra.publishing.slices import RESOURCE_SLICES
from agent.dra.testing import TEAM
from agent.mig.outcomes import MigState as MigOutcome
from agent.mps.core import Phase
from agent.persistence.files import identity
from deviceplugin.cdi import file_name
from failpoints.names import Failpoint
from inventory.api.names import REMEDIATION_ORDER
from kube.resources import NODES, PODS
from tests.support.agent.node import EAGER, GPU, fleet
from tests.support.failpoints.node import NODE, Act, KilledNode, Stage

H100: Final = "NVIDIA H100 80GB HBM3"
CDI: Final = EAGER + "flags: {plugin: {deviceListStrategy: [cdi-cri]}}\n"
MIG: Final = "nvidia.com/mig-"
SHARED: Final = "nvidia.com/gpu.shared"
CLAIMS: Final = EAGER + "dra: {enabled: true}\nlayout:\n- {gpus: [0, 1], mode: dra, whenBusy: wait}\n"
REPAIRED: Final = (
    EAGER + "remediation: {reset: when-free, retireAfter: {faults: 100}}\n"
    "layout:\n- {gpus: [0], mode: mig, profiles: [3g.40gb, 2g.20gb], whenBusy: wait}\n"
)
COUNT: Final = "nvidia.com/gpu.count"


def layout(*entries: str, base: str = EAGER) -> str:
    return base + "layout:\n" + "".join(f"- {entry}\n" for entry in entries)


def cut(*profiles: str, busy: str = "wait") -> str:
    return layout(f"{{gpus: [0], mode: mig, profiles: [{', '.join(profiles)}], whenBusy: {busy}}}")


def offered(here: KilledNode) -> dict[str, int]:
    """Healthy devices by resource."""
    found = {name: len(endpoint.healthy) for name, endpoint in here.lab.kubelet.endpoints.items()}
    return {name: count for name, count in found.items() if count}


def labels(here: KilledNode) -> dict[str, str]:
    found: dict[str, str] = here.server.get(NODES, NODE)["metadata"].get("labels", {})
    return found


def kept(here: KilledNode, pod: str) -> bool:
    """The pod has its device, and the agent knows it from the kubelet's list."""
    agent = here.lab.agent
    shown = set(agent.holders.holders) == here.lab.kubelet.held() and not agent.node_state.grants.open
    return ("default", pod) in here.lab.kubelet.pods and shown


def settled(here: KilledNode) -> bool:
    """The layout is in force on the hardware, and nothing waits."""
    statuses = here.lab.agent.mig.reconciler.statuses.values()
    return not here.lab.agent.node_state.waits and all(one.state is MigOutcome.APPLIED for one in statuses)


# -- acts --------------------------------------------------------------------------------------------------------------


def an_agent_starts(here: KilledNode, n: str) -> list[Stage]:
    """The cluster has lost what the one before had written."""
    del n

    def forgotten() -> Any:
        for each in here.server.list_all(GPU_NODES):
            here.server.delete(GPU_NODES, each["metadata"]["name"])
        here.server.merge(NODES, NODE, {"metadata": {"labels": {COUNT: None}}, "status": None})
        return here.restart()

    def told() -> bool:
        conditions = here.server.get(NODES, NODE).get("status", {}).get("conditions", ())
        if [each["status"] for each in conditions] != ["True", "True"]:
            return False
        return offered(here) == {GPU: 2} and labels(here).get(COUNT) == "2" and bool(here.server.list_all(GPU_NODES))

    return [Stage(forgotten, told, "the GPUs are offered and the cluster is told")]


def a_pod_gets_a_gpu(here: KilledNode, n: str) -> list[Stage]:
    pod, before = f"pod-{n}", checkpoint(here)
    return [
        Stage(lambda: None, lambda: offered(here) == {GPU: 2}, "the GPUs are offered"),
        Stage(
            lambda: here.lab.agent._files.changed(),  # noqa: PLW0108 - each life has its own agent
            lambda: checkpoint(here) not in (None, before),
            "they are in the checkpoint",
        ),
        Stage(lambda: here.allocate(pod, GPU), lambda: kept(here, pod), "the pod has a GPU"),
        Stage(lambda: here.lab.kubelet.delete(pod), lambda: True, "the pod has ended"),
    ]


def checkpoint(here: KilledNode) -> tuple[int, int, int] | None:
    return identity(here.lab.state_dir / "checkpoint.json")


def a_gpu_is_cut(here: KilledNode, n: str) -> list[Stage]:
    """Whole, then cut, then cut otherwise with a pod on it, then whole again."""
    pod = f"pod-{n}"
    first, second = {f"{MIG}3g.40gb": 1, f"{MIG}2g.20gb": 1}, {f"{MIG}1g.10gb": 1, f"{MIG}4g.40gb": 1}
    return [
        Stage(lambda: None, lambda: offered(here) == {GPU: 1} and settled(here), "the GPU is offered"),
        Stage(
            lambda: here.reconfigure(cut("3g.40gb", "2g.20gb")),
            lambda: offered(here) == first and settled(here),
            "it is cut",
        ),
        Stage(
            lambda: here.reconfigure(cut("1g.10gb", "4g.40gb")),
            lambda: offered(here) == second and settled(here),
            "it is cut otherwise",
        ),
        Stage(lambda: here.allocate(pod, f"{MIG}1g.10gb"), lambda: kept(here, pod), "a pod has an instance"),
        Stage(lambda: here.lab.kubelet.delete(pod), lambda: True, "the pod has ended"),
        Stage(
            lambda: here.reconfigure(layout("{gpus: [0], mode: whole, whenBusy: wait}")),
            lambda: offered(here) == {GPU: 1} and settled(here),
            "it is whole again",
        ),
        Stage(lambda: here.reconfigure(EAGER), lambda: offered(here) == {GPU: 1}, "no layout is left"),
    ]


def a_gpu_is_drained(here: KilledNode, n: str) -> list[Stage]:
    """A pod is evicted for the layout; here it goes when its Eviction is there."""
    pod = f"pod-{n}"

    def evicted() -> bool:
        if here.server.seen("POST", f"/pods/{pod}/eviction"):
            here.lab.kubelet.delete(pod)
        return offered(here) == {f"{MIG}7g.80gb": 1} and settled(here)

    return [
        Stage(
            lambda: here.server.create(PODS, pod, namespace="default"),
            lambda: offered(here) == {GPU: 1} and settled(here),
            "the GPU is offered",
        ),
        Stage(lambda: here.allocate(pod, GPU), lambda: kept(here, pod), "a pod has it"),
        Stage(lambda: here.reconfigure(cut("7g.80gb", busy="drain")), evicted, "it is cut once the pod has gone"),
        Stage(
            lambda: here.reconfigure(layout("{gpus: [0], mode: whole, whenBusy: wait}")),
            lambda: offered(here) == {GPU: 1} and settled(here),
            "it is whole again",
        ),
    ]


def a_gpu_is_shared(here: KilledNode, n: str) -> list[Stage]:
    """By an MPS daemon, which is there before a pod gets a share, and gone with the layout."""
    pod = f"pod-{n}"
    shared = layout("{gpus: [0], mode: mps, replicas: 2, whenBusy: wait}")

    def ready() -> bool:
        states = here.lab.agent.mps.states()
        return offered(here) == {SHARED: 2} and [one.phase for one in states] == [Phase.READY]

    def ended() -> bool:
        return offered(here) == {GPU: 1} and not here.lab.agent.mps.states()

    return [
        Stage(lambda: None, lambda: offered(here) == {GPU: 1}, "the GPU is offered"),
        Stage(lambda: here.reconfigure(shared), ready, "its shares are offered"),
        Stage(lambda: here.allocate(pod, SHARED), lambda: kept(here, pod), "a pod has a share"),
        Stage(lambda: here.lab.kubelet.delete(pod), lambda: True, "the pod has ended"),
        Stage(
            lambda: here.reconfigure(layout("{gpus: [0], mode: whole, whenBusy: wait}")),
            lambda: ended() and compute_mode(here) == 0,
            "the GPU is whole, in the mode from before",
        ),
    ]


def compute_mode(here: KilledNode) -> int:
    return int(here.lab.simulation.hardware.gpus[0].compute_mode)


def a_claim_has_a_gpu(here: KilledNode, n: str) -> list[Stage]:
    uid = f"claim-{n}"

    def published() -> bool:
        return bool(here.server.list_all(RESOURCE_SLICES)) and len(here.watcher.sockets) == 1

    def cdi() -> list[str]:
        return [path.name for path in (here.lab.folder / "cdi").glob(f"*{uid}*")]

    def says() -> bool:
        return bool(here.server.get(RESOURCE_CLAIMS, uid, namespace=TEAM)["status"].get("devices"))

    return [
        Stage(lambda: None, published, "slices are published"),
        Stage(lambda: here.claim(uid, "gpu-0"), lambda: True, "a claim is allocated"),
        Stage(
            lambda: here.prepare(uid), lambda: uid in here.prepared and bool(cdi()) and says(), "the claim is prepared"
        ),
        Stage(lambda: here.unprepare(uid), lambda: not cdi(), "it is given back"),
        Stage(lambda: here.server.delete(RESOURCE_CLAIMS, uid, namespace=TEAM), lambda: True, "the claim is deleted"),
    ]


def slices_come_and_go(here: KilledNode, n: str) -> list[Stage]:
    del n

    def there() -> bool:
        return bool(here.server.list_all(RESOURCE_SLICES))

    def devices() -> int:
        return sum(len(each["spec"].get("devices", ())) for each in here.server.list_all(RESOURCE_SLICES))

    def spoiled() -> None:
        found = next(each for each in here.server.list_all(RESOURCE_SLICES) if each["spec"].get("devices"))
        spec = {**found["spec"], "devices": found["spec"]["devices"][:-1]}
        here.server.merge(RESOURCE_SLICES, found["metadata"]["name"], {"spec": spec})

    def published() -> bool:
        whole.append(devices())
        return here.lab.agent.dra.publisher.settled and devices() > 0

    whole: list[int] = []

    return [
        Stage(lambda: here.reconfigure(CLAIMS), published, "slices are published"),
        Stage(spoiled, lambda: devices() == max(whole), "what somebody spoiled is mended"),
        Stage(
            lambda: here.reconfigure(layout("{gpus: [0, 1], mode: whole, whenBusy: wait}")),
            lambda: not there() and offered(here) == {GPU: 2},
            "they are gone",
        ),
    ]


def a_gpu_is_repaired(here: KilledNode, n: str) -> list[Stage]:
    """Its driver asks for a reset; it is cut again afterwards."""
    del n
    cut_so = {f"{MIG}3g.40gb": 1, f"{MIG}2g.20gb": 1}

    def well() -> bool:
        granted(here)
        gpu = here.lab.simulation.hardware.gpus[0]
        repairs = here.lab.agent.repair.repairs()
        return gpu.recovery == 0 and gpu.persistence and not repairs and offered(here) == cut_so and settled(here)

    def faulty() -> None:
        if not here.lab.simulation.hardware.gpus[0].recovery:
            here.lab.sim(gpu=0, xid=119)

    return [
        Stage(lambda: None, well, "the GPU is cut"),
        Stage(faulty, lambda: well() and reset_since(here), "it was reset, and is back"),
    ]


def granted(here: KilledNode) -> None:
    """The controller grants each reset that is asked for."""
    status = here.server.get(GPU_NODES, NODE)["status"] if here.server.list_all(GPU_NODES) else {}
    asked = [repair for repair in status.get("repairs", ()) if repair.get("asks") == "reset"]
    had = {(each["gpu"], each["generation"]) for each in status.get("remediationGrants", ())}
    if asked and not had >= {(each["gpu"], each["generation"]) for each in asked}:
        now = dt.datetime.now(dt.UTC).isoformat()
        grants = [
            {"gpu": each["gpu"], "generation": each["generation"], "action": "reset", "granted": now} for each in asked
        ]
        here.server.apply(GPU_NODES, NODE, {"status": {"remediationGrants": grants}}, manager="tessera-controller")


def a_person_orders(here: KilledNode, n: str) -> list[Stage]:
    """A GPU is retired and returned by annotations of the GpuNode."""
    del n
    uuid = here.lab.uuid(0)

    def ordered(order: str) -> None:
        annotations = {f"{REMEDIATION_ORDER}{uuid}": order}
        here.server.merge(GPU_NODES, NODE, {"metadata": {"annotations": annotations}})

    def obeyed(*states: str) -> bool:
        found = here.server.get(GPU_NODES, NODE)
        repairs = tuple(each["state"] for each in found["status"].get("repairs", ()))
        return repairs == states and not found["metadata"].get("annotations")

    return [
        Stage(lambda: None, lambda: bool(here.server.list_all(GPU_NODES)) and obeyed(), "there is a GpuNode"),
        Stage(lambda: ordered("retire"), lambda: obeyed("Retired") and offered(here) == {GPU: 1}, "it is retired"),
        Stage(lambda: ordered("return"), lambda: obeyed() and offered(here) == {GPU: 2}, "it is back"),
    ]


def reset_since(here: KilledNode) -> bool:
    """The GPU was reset for its last XID."""
    gpu = here.lab.simulation.hardware.gpus[0]
    return len(gpu.xids) <= gpu.epoch - 1


def device_files_are_written(here: KilledNode, n: str) -> list[Stage]:
    del n
    file = here.lab.folder / "cdi" / file_name("gpu")
    return [
        Stage(lambda: here.reconfigure(CDI), lambda: offered(here) == {GPU: 2} and file.exists(), "it is written"),
        Stage(lambda: here.reconfigure(EAGER), lambda: offered(here) == {GPU: 2}, "nothing needs it any more"),
        Stage(lambda: file.unlink(missing_ok=True), lambda: True, "a person removes it"),
    ]


ACTS: Final = (
    Act(
        "device files are written",
        (Failpoint.CDI,),
        device_files_are_written,
        EAGER,
        fleet(2),
    ),
    Act(
        "an agent starts",
        (Failpoint.REGISTERED, Failpoint.GPU_NODE, Failpoint.NODE_LABELS, Failpoint.NODE_CONDITIONS),
        an_agent_starts,
        EAGER,
        fleet(2),
    ),
    Act("a pod gets a GPU", (Failpoint.ALLOCATED, Failpoint.CHECKPOINT), a_pod_gets_a_gpu, CDI, fleet(2)),
    Act(
        "a GPU is cut",
        (
            Failpoint.MIG_JOURNAL,
            Failpoint.MIG_MODE,
            Failpoint.GPU_INSTANCE,
            Failpoint.COMPUTE_INSTANCE,
            Failpoint.COMPUTE_INSTANCE_DESTROYED,
            Failpoint.GPU_INSTANCE_DESTROYED,
            Failpoint.LAYOUT,
        ),
        a_gpu_is_cut,
        EAGER,
        fleet(1, H100),
    ),
    Act("a GPU is drained", (Failpoint.POD_EVICTED,), a_gpu_is_drained, EAGER, fleet(1, H100)),
    Act(
        "a GPU is shared",
        (
            Failpoint.MPS_FOLDERS,
            Failpoint.COMPUTE_MODE,
            Failpoint.MPS_MODE,
            Failpoint.MPS_STARTED,
            Failpoint.MPS_LIMITS,
            Failpoint.MPS_ENDED,
            Failpoint.MPS_KILLED,
            Failpoint.MPS_FOLDERS_REMOVED,
        ),
        a_gpu_is_shared,
        EAGER,
        fleet(1),
    ),
    Act(
        "a GPU is repaired",
        (Failpoint.REPAIRS, Failpoint.NVIDIA_SMI),
        a_gpu_is_repaired,
        REPAIRED,
        fleet(1, H100),
    ),
    Act(
        "a person orders",
        (Failpoint.ORDER_TAKEN_OFF,),
        a_person_orders,
        EAGER + "remediation: {reset: when-free}\n",
        fleet(2),
    ),
    Act(
        "a claim has a GPU",
        (Failpoint.CLAIMS, Failpoint.CLAIM_CDI, Failpoint.CLAIM_STATUS, Failpoint.CLAIM_CDI_REMOVED),
        a_claim_has_a_gpu,
        CLAIMS,
        fleet(2),
    ),
    Act(
        "slices come and go",
        (
            Failpoint.SLICES_NOTED,
            Failpoint.SLICE,
            Failpoint.SLICE_CHANGED,
            Failpoint.SLICE_REMOVED,
            Failpoint.SLICES_FORGOTTEN,
        ),
        slices_come_and_go,
        EAGER,
        fleet(2),
    ),
)
