"""One workload with checks that request nodes, an autoscaler that answers, and what the API server keeps of both."""

from typing import Any

import msgspec

from controller.objects.decode import decode
from controller.objects.meta import Condition, is_true, object_key, with_condition
from controller.objects.provisioning import PROVISIONING, ProvisioningRequest, ProvisioningRequestConfig
from controller.objects.queues import AdmissionCheck, ResourceFlavor
from controller.objects.workload import AdmissionCheckState, Workload
from controller.reconcile.lifecycle.lifecycle import QueuePolicies, step
from controller.reconcile.provisioning.provisioning import Provisioning, Steps
from controller.reconcile.provisioning.requests import bodies
from controller.scheduler.decisions import reasons
from controller.scheduler.model.config import EngineConfig
from controller.scheduler.model.gates import FeatureGates
from controller.scheduler.model.resources import WorkloadKey
from inventory.api.names import FLAVORS_GIVEN_UP

KEY = WorkloadKey("team/train")
CONTAINER = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
POD_SET = {"name": "main", "count": 2, "template": {"metadata": {}, "spec": {"containers": [CONTAINER]}}}
OVER = ("Failed", "CapacityRevoked", "BookingExpired")


class ProvisioningWorld:
    """``workload`` and ``requests`` are what the API server has. The core knows of requests what was delivered.
    ``check_names``: the checks of the workload's queue; ``retries``: of their configuration.
    """

    def __init__(
        self, *check_names: str, extended: bool = False, gates: dict[str, bool] | None = None, **spec: Any
    ) -> None:
        self.names = check_names or ("make",)
        self.core = Provisioning(FeatureGates(gates), extended=extended)
        self.core.set_served(served=True)
        self.groups: list[list[str]] = [["f", "g"]]
        """Flavors of its ClusterQueue, by resource group."""
        self.now_s = 1_700_000_000.0
        self.requests: dict[str, ProvisioningRequest] = {}
        self._shown: set[str] = set()
        """Names of requests that the core knows of."""
        self.uids = 0
        self.log: list[str] = []
        self.spec = {"provisioningClassName": "k", **spec}
        self.configure(**self.spec)
        for name in self.names:
            self.core.set_check(name, self.check(name))
        self.workload = self._made()
        self.tell()

    @staticmethod
    def check(name: str, controller: str = PROVISIONING) -> AdmissionCheck:
        parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "c"}
        spec = {"controllerName": controller, "parameters": parameters}
        return decode({"metadata": {"name": name}, "spec": spec}, AdmissionCheck)

    def configure(self, **spec: Any) -> None:
        found = decode({"metadata": {"name": "c"}, "spec": spec}, ProvisioningRequestConfig)
        self.core.set_config("c", found)

    @staticmethod
    def _made() -> Workload:
        meta = {"name": "train", "namespace": "team", "uid": "w1"}
        return decode({"metadata": meta, "spec": {"podSets": [POD_SET]}}, Workload)

    # -- the workload --------------------------------------------------------------------------------------------------

    def tell(self) -> None:
        self.core.set_workload(KEY, self.workload)

    def _become(self, *conditions: tuple[str, str], **status: Any) -> None:
        known = self.workload.status.conditions
        for type_, value in conditions:
            known = with_condition(known, Condition(type=type_, status=value, reason="Test"))
        after = msgspec.structs.replace(self.workload.status, conditions=known, **status)
        self.workload = msgspec.structs.replace(self.workload, status=after)
        self.tell()

    def reserve(self, *, flavor: str = "f", count: int = 2, delayed: bool = False) -> None:
        """It gets quota; its checks begin, with the retries of before."""
        given: dict[str, Any] = {"name": "main", "flavors": {"cpu": flavor}, "count": count}
        if delayed:
            given["delayedTopologyRequest"] = "Pending"
        whole = {"status": {"admission": {"clusterQueue": "q", "podSetAssignments": [given]}}}
        before = {state.name: state for state in self.workload.status.admission_checks}
        states = tuple(before.get(name) or AdmissionCheckState(name=name, state="Pending") for name in self.names)
        admission = decode(whole, Workload).status.admission
        self._become(("QuotaReserved", "True"), ("Evicted", "False"), admission=admission, admission_checks=states)

    def place(self) -> None:
        """A second pass found its places."""
        assignment = {"levels": ["kubernetes.io/hostname"], "slices": [
            {"domainCount": 1, "valuesPerLevel": [{"universal": "n1"}], "podCounts": {"universal": 2}}]}  # fmt: skip
        given = {"name": "main", "flavors": {"cpu": "f"}, "count": 2, "topologyAssignment": assignment,
                 "delayedTopologyRequest": "Ready"}  # fmt: skip
        whole = {"status": {"admission": {"clusterQueue": "q", "podSetAssignments": [given]}}}
        self._become(admission=decode(whole, Workload).status.admission)

    def admit(self) -> None:
        self._become(("Admitted", "True"))

    def evict(self) -> None:
        """The workload is preempted: another one takes its quota."""
        self.live(reason="Preempted")

    def finish(self) -> None:
        self._become(("Finished", "True"))

    def release(self) -> None:
        """Its pods have ended: its quota is free."""
        if is_true(self.workload.status.conditions, reasons.EVICTED):
            self._become(("QuotaReserved", "False"), ("Admitted", "False"), admission=None)

    def live(self, reason: str = "") -> None:
        """What the controller's own steps make of the states of checks, and of ``reason``."""
        if reason:
            self._become(("Evicted", "True"))
            return
        policies = QueuePolicies(checks=self.names)
        while (found := step(self.workload, policies, EngineConfig(), self.now_s)) is not None:
            after = found.after
            if found.deactivate:
                after = msgspec.structs.replace(after, spec=msgspec.structs.replace(after.spec, active=False))
            self.workload = after
        self.tell()

    @property
    def state(self) -> AdmissionCheckState:
        return self.workload.status.admission_checks[0]

    # -- the controller ------------------------------------------------------------------------------------------------

    def deliver(self) -> None:
        """The watch shows all requests as they are."""
        for name in {*self.requests, *self._shown}:
            self.core.set_request(object_key("team", name), self.requests.get(name))
        self._shown = set(self.requests)
        self.core.validate()

    def turn(self, most: int = 99) -> Steps:
        """One reconciliation, which is killed after so many writes."""
        steps = self.core.decide(KEY, self.workload, self.now_s, self.groups)
        for request in steps.remove:
            if (most := most - 1) < 0:
                return steps
            known = self.requests.get(request.metadata.name)
            if known is not None and known.metadata.uid == request.metadata.uid:
                del self.requests[request.metadata.name]
        for wanted in steps.create:
            if (most := most - 1) < 0:
                return steps
            made = bodies(self.workload, [POD_SET], wanted.config, wanted.name, _flavor)
            if wanted.name in self.requests:
                return steps  # the API server refuses it
            self.uids += 1
            body = {**made.request, "metadata": {**made.request["metadata"], "uid": f"r{self.uids}"}}
            self.requests[wanted.name] = decode(body, ProvisioningRequest)
            self.log.append(wanted.name)
        if steps.give_up:
            notes = {FLAVORS_GIVEN_UP: ",".join(steps.give_up)}
            meta = msgspec.structs.replace(self.workload.metadata, annotations=notes)
            self.workload = msgspec.structs.replace(self.workload, metadata=meta)
            self.tell()
        if steps.after is not None and most > 0:
            self.workload = steps.after
            self.tell()
        return steps

    def settle(self) -> None:
        """All is seen and done, until nothing changes any more."""
        for _ in range(20):
            before = (self.workload, dict(self.requests))
            self.deliver()
            self.turn()
            if before == (self.workload, self.requests):
                return
        raise AssertionError("it never comes to rest")

    # -- the autoscaler ------------------------------------------------------------------------------------------------

    def say(self, type_: str, message: str = "", *, status: str = "True", name: str = "", **details: str) -> None:
        """About a request, by default the one that was made last."""
        name = name or max(self.requests, key=lambda each: int(self.requests[each].metadata.uid[1:]))
        known = self.requests[name]
        said = Condition(type=type_, status=status, reason="Test", message=message)
        after = msgspec.structs.replace(
            known.status,
            conditions=with_condition(known.status.conditions, said),
            provisioning_class_details={**known.status.provisioning_class_details, **details},
        )
        self.requests[name] = msgspec.structs.replace(known, status=after)

    def live_requests(self, check: str) -> list[str]:
        """Requests of a check that may still give nodes to a workload that waits."""
        return [
            name
            for name, request in self.requests.items()
            if name.startswith(f"train-{check}-") and not any(is_true(request.status.conditions, each) for each in OVER)
        ]


def _flavor(name: str) -> ResourceFlavor:
    return decode({"metadata": {"name": name}}, ResourceFlavor)
