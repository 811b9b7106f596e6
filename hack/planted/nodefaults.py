"""The faults of the node: agent, device plugin, device model."""

from typing import Final

from hack.planted.planting import Fault

_NODE: Final = "node"

NODE_FAULTS: Final = (
    Fault(
        name="holders not asked again",
        function="NodeState._sure",
        before="self._held is not None and self._answered_s > self._pending_s",
        after="self._held is not None",
        program=_NODE,
        nets=("history", "kubelet"),
        says="A GPU is shared under a pod that the kubelet told of after the agent had asked it for the last time.",
    ),
    Fault(
        name="stale holders",
        function="Agent._granted",
        before="self.node_state.grants.granted(resource, devices, self._clock())",
        after="",
        program=_NODE,
        nets=("history", "kubelet"),
        says="A GPU is shared under a pod that got it a moment ago: a List from before its Allocate is believed.",
    ),
    Fault(
        name="interrupted MIG not withheld",
        function="MigNode._withhold_interrupted",
        before="entry is not None and not entry.done and entry.boot_id == self.boot_id",
        after="entry is not None and entry.done and entry.boot_id == self.boot_id",
        program=_NODE,
        nets=("hardware",),
        says="After a kill in the middle of a MIG change pods get instances that the rest of the change removes.",
    ),
    Fault(
        name="shares counted once too few",
        function="_Offer.devices",
        before="range(self.first, self.first + self.replicas)",
        after="range(self.first + 1, self.first + self.replicas)",
        program=_NODE,
        nets=("kubelet",),
        says="A GPU that a layout shares by three is offered twice.",
    ),
    Fault(
        name="an observed reset counted for the wrong GPU",
        function="HealthCore._take",
        before="self._reset(record, now_s)",
        after="""
for other in self._records.values():
    self._drop(other, [fault for fault in other.open.values() if fault.cleared_by_reset()])
_start_over(record, now_s)
""",
        program=_NODE,
        nets=("kubelet",),
        says="The reset of one GPU gives pods a broken other one.",
    ),
    Fault(
        name="partition removed that is held",
        function="GpuMig.held",
        before="each.busy or self.uuids.get((instance.gi_id, each.ci_id)) in held",
        after="each.busy and self.uuids.get((instance.gi_id, each.ci_id)) in held",
        program=_NODE,
        nets=("hardware", "history"),
        says="A MIG instance is destroyed under a pod that has it and runs nothing at this moment.",
    ),
    Fault(
        name="a pod's second container unlimited",
        function="DevicePluginServer.Allocate",
        before="client is not None",
        after="client is not None and not responses",
        program=_NODE,
        nets=("kubelet",),
        says="Of two containers with parts of a GPU in one call the second has all of its memory and threads.",
    ),
    Fault(
        name="a device returned before its probation",
        function="HealthCore._passed",
        before="now_s - since_s >= self.settings.probation_s and unit.clean_probes >= self.settings.clean_probes",
        after="now_s - since_s >= self.settings.probation_s or unit.clean_probes >= self.settings.clean_probes",
        program=_NODE,
        nets=("kubelet",),
        says="A repaired GPU is given out after three answers, however soon they come.",
    ),
    Fault(
        name="a held GPU is reset",
        function="Attempt._holders",
        before="words.held(', '.join((where[pod] for pod in sorted(where)))) if where else ''",
        after="''",
        program=_NODE,
        nets=("history",),
        says="A GPU is reset under a pod that has it and runs nothing at this moment.",
    ),
    Fault(
        name="leaked claim",
        function="Preparer.give_back",
        before="self.ledger.end(uid)",
        after="self.ledger.answered(uid)",
        program=_NODE,
        nets=("hardware", "kubelet"),
        says="A claim that was given back keeps its GPU, and its MIG instance is never removed.",
    ),
)
