"""A small cluster that keeps all rules, as a record would have it. It knows nothing of Tessera.

A queue controller lets jobs in by priority and age, if the tree of cohorts has room; a Job controller makes their pods;
kubelets give them GPUs, shares of them or MIG instances; an administrator changes quotas. Each source is late by its
own time, and a fault, if one is planted, makes one of them do one thing wrong.
"""

import random
from typing import Any, Final

from tests.support.history.told import GPU, Json, Told, admitted, ended, having, job, leaving, meta, owner, pod

LATE_S: Final = 2.0
HELD_S: Final = 8.0
"""The seconds for which a pod has a GPU before a fault resets it, and after: longer than sources are late."""
SHARE: Final = "nvidia.com/gpu.shared"
MIG: Final = "nvidia.com/mig-1g.10gb"
SIDECAR: Final = {"name": "s", "restartPolicy": "Always", "resources": {"requests": {GPU: "1"}}}


class Run:
    """One job's life."""

    def __init__(self, body: Json, waiting: Json, queue: str, resource: str, size: int, count: int) -> None:
        self.body, self.waiting, self.queue = body, waiting, queue
        self.resource, self.size, self.count = resource, size, count
        self.priority = int(waiting["spec"]["priority"])
        self.admitted_s: float | None = None
        self.ends_s = 0.0
        self.pods: list[Json] = []
        self.ids: dict[str, list[str]] = {}
        self.nodes: dict[str, str] = {}

    @property
    def amount(self) -> int:
        return self.size * self.count


class Honest:
    """``play`` once, then ``told`` has the record. ``fault``: one word, see where it is asked for."""

    def __init__(self, seed: int, fault: str = "", steps: int = 24) -> None:
        self._rng, self._chance = random.Random(seed), random.Random(seed)
        self._fault, self._steps = fault, steps
        self._now_s = 0.0
        self._events: list[tuple[float, int, Json]] = []
        self._late = {
            source: self._rng.uniform(0, LATE_S) for source in ("Workload", "Pod", "Job", "kubelet", "hardware")
        }
        self._waiting: list[Run] = []
        self._running: list[Run] = []
        self._made = 0
        self._free = {
            "n1": {GPU: [f"GPU-a{n}" for n in range(6)], SHARE: [f"GPU-s::{n}" for n in range(3)], MIG: []},
            "n2": {GPU: [f"GPU-b{n}" for n in range(6)], SHARE: [], MIG: [f"MIG-{n}" for n in range(3)]},
        }
        self._mig = [f"MIG-{n}" for n in range(3)]
        self._resets: dict[str, int] = {}
        self._minimum_s = self._rng.choice([0, 30])
        self._queues = self._drawn_queues()

    # -- the record --------------------------------------------------------------------------------------------------

    def told(self) -> Told:
        told = Told()
        known: set[tuple[str, str]] = set()
        for at_s, _, line in sorted(self._events, key=lambda each: each[:2]):
            if line.get("source") == "api":
                about = line["object"]["kind"], line["object"]["metadata"]["name"]
                if line["type"] != "DELETED":
                    line["type"] = "MODIFIED" if about in known else "ADDED"
                known.add(about)
            told.lines.append({"t": round(at_s, 3), **line})
        told.t = self._now_s
        return told

    def _tell(self, whose: str, **line: Any) -> None:
        late = 0.0 if self._now_s == 0.0 else self._late.get(whose, 0.0)
        self._events.append((self._now_s + late, len(self._events), line))

    def _put(self, body: Json, type_: str = "") -> None:
        self._tell(body["kind"], source="api", type=type_, object=body)

    def _list_pods(self, node: str) -> None:
        listed = [
            {
                "namespace": "team",
                "name": name,
                "containers": [{"name": "c", "devices": [{"resource": run.resource, "ids": ids}]}],
            }
            for run in self._running
            for name, ids in run.ids.items()
            if run.nodes[name] == node
        ]
        self._tell("kubelet", source="kubelet", node=node, call="PodResources", pods=listed)

    def _show_hardware(self) -> None:
        whole = [self._gpu(f"GPU-a{n}") for n in range(6)]
        shares = 2 if self._fault == "shares-once-too-few" else 3
        self._tell("hardware", source="hardware", node="n1", gpus=[*whole, self._gpu("GPU-s", replicas=shares)])
        cut = {**self._gpu("GPU-m"), "mig": [{"uuid": each, "profile": "1g.10gb"} for each in self._mig]}
        whole = [self._gpu(f"GPU-b{n}") for n in range(6)]
        self._tell("hardware", source="hardware", node="n2", gpus=[*whole, cut])

    def _gpu(self, uuid: str, **more: Any) -> Json:
        return {"uuid": uuid, **more, "resets": self._resets.get(uuid, 0)}

    # -- queues ------------------------------------------------------------------------------------------------------

    def _drawn_queues(self) -> dict[str, Json]:
        """Two ClusterQueues below one Cohort, one of them by way of another Cohort; one that stands alone."""
        found = {}
        for name, cohort in (("a", "root"), ("b", "left"), ("alone", "")):
            quota = self._rng.randint(2, 4)
            found[name] = {"nominal": quota, "cohort": cohort, "borrow": None, "lend": None}
            if cohort and self._rng.random() < 0.5:
                found[name]["borrow"] = self._rng.randint(0, 2)
            if cohort and self._rng.random() < 0.5:
                found[name]["lend"] = self._rng.randint(0, quota)
        return found

    def _put_queue(self, name: str) -> None:
        said = self._queues[name]
        resources = []
        for resource in (GPU, SHARE, MIG):
            limits = {"name": resource, "nominalQuota": str(said["nominal"])}
            if said["borrow"] is not None:
                limits["borrowingLimit"] = str(said["borrow"])
            if said["lend"] is not None:
                limits["lendingLimit"] = str(said["lend"])
            resources.append(limits)
        spec = {
            "resourceGroups": [{"flavors": [{"name": "f", "resources": resources}]}],
            "cohortName": said["cohort"],
            "queueingStrategy": "BestEffortFIFO",
        }
        notes = {"tessera.dev/minimum-runtime-before-preemption": f"{self._minimum_s}s"} if self._minimum_s else {}
        self._put(
            {
                "kind": "ClusterQueue",
                "metadata": {"name": name, "uid": f"cq-{name}", "annotations": notes},
                "spec": spec,
            }
        )

    def _fits(self, queue: str, resource: str, amount: int) -> bool:
        """What each queue does not keep for itself it lends, and has to share what it uses beyond what it keeps."""
        of = self._queues
        running = [run for run in self._running if run.resource == resource]
        used = {name: sum(self._charged(run) for run in running if run.queue == name) for name in of}
        used[queue] += amount
        if not of[queue]["cohort"]:
            return bool(used[queue] <= of[queue]["nominal"])
        if of[queue]["borrow"] is not None and used[queue] > of[queue]["nominal"] + of[queue]["borrow"]:
            return False
        lent = borne = 0
        for name in ("a", "b"):
            all_of_it = of[name]["lend"] is None or self._fault == "lending-limit-crossed"
            lends = of[name]["nominal"] if all_of_it else of[name]["lend"]
            lent += lends
            borne += max(0, used[name] - (of[name]["nominal"] - lends))
        return borne <= lent

    def _charged(self, run: Run) -> int:
        if self._fault == "gang-charged-one-less":
            return run.size * max(1, run.count - 1)
        if self._fault == "sidecar-uncharged" and run.size > 1:
            return (run.size - 1) * run.count
        return run.amount

    # -- steps -------------------------------------------------------------------------------------------------------

    def play(self) -> "Honest":
        self._put({"kind": "Cohort", "metadata": {"name": "left", "uid": "co"}, "spec": {"parentName": "root"}})
        for name in self._queues:
            self._put_queue(name)
            body = {"kind": "LocalQueue", "metadata": meta(f"lq-{name}"), "spec": {"clusterQueue": name}}
            self._put(body)
        self._show_hardware()
        for _ in range(self._steps):
            self._now_s += self._rng.uniform(1, 12)
            step = self._rng.random()
            if step < 0.6:
                self._submit()
            elif step < 0.75:
                self._evict_one()
            elif step < 0.8:
                self._change_quota()
            elif step < 0.9:
                self._cut_again()
            else:
                self._reset_one()
            self._end_those_due()
            self._let_in()
        self._now_s += 200.0
        self._end_those_due()
        self._let_in()
        self._now_s += 100.0
        self._list_pods("n1")
        return self

    def _submit(self) -> None:
        self._made += 1
        name = f"j{self._made}"
        resource = self._rng.choice([GPU, GPU, GPU, SHARE, MIG])
        sidecar = resource == GPU and self._rng.random() < 0.3
        count = self._rng.randint(1, 3) if resource == GPU else 1
        spec: Json = {"containers": [{"name": "c", "resources": {"limits": {resource: "1"}}}]}
        if sidecar:
            spec["initContainers"] = [SIDECAR]
        queue = self._rng.choice(list(self._queues))
        body = job(name, count=count, suspend=True, queue=f"lq-{queue}", spec=spec)
        sets = [{"name": "main", "count": count, "template": {"spec": spec}}]
        about = meta(f"job-{name}", ownerReferences=[owner(body)], creationTimestamp=self._stamp())
        told = {"type": "QuotaReserved", "status": "False", "reason": "WaitingForQuota", "message": "no quota"}
        wanted = {"queueName": f"lq-{queue}", "podSets": sets, "priority": self._rng.choice([0, 0, 10])}
        waiting = {"kind": "Workload", "metadata": about, "spec": wanted, "status": {"conditions": [told]}}
        self._put(body)
        if self._fault == "no-reason":
            waiting = {**waiting, "status": {}}
        if self._fault == "lost-workload" and self._made % 3 == 0:
            self._put(waiting)
            return  # nobody knows of it any more
        if self._fault != "no-workload":
            self._put(waiting)
            self._waiting.append(Run(body, waiting, queue, resource, 2 if sidecar else 1, count))

    def _stamp(self) -> str:
        minutes, seconds = divmod(int(self._now_s), 60)
        return f"2026-01-01T00:{minutes:02d}:{seconds:02d}Z"

    def _let_in(self) -> None:
        """The first of each queue that fits: those of the same shape never pass each other."""
        order = sorted(self._waiting, key=lambda run: (-run.priority, run.waiting["metadata"]["creationTimestamp"]))
        if self._fault == "turned-around":
            order = order[::-1]
        for run in order:
            placed = self._places(run) if self._fits(run.queue, run.resource, self._charged(run)) else None
            if placed is not None:
                self._waiting.remove(run)
                self._start(run, placed)
            elif self._fits(run.queue, run.resource, self._charged(run)):
                told = {"type": "QuotaReserved", "status": "False", "reason": "TopologyPlacementFailed", "message": "-"}
                others = [each for each in run.waiting["status"].get("conditions", []) if each["type"] != told["type"]]
                self._put({**run.waiting, "status": {"conditions": [*others, told]}})

    def _places(self, run: Run) -> list[tuple[str, list[str]]] | None:
        """Of each pod the node and its devices; taken at once."""
        found: list[tuple[str, list[str]]] = []
        for _ in range(run.count):
            node = next((name for name, free in self._free.items() if len(free[run.resource]) >= run.size), None)
            if node is None:
                for name, ids in found:
                    self._free[name][run.resource] += ids
                return None
            free = self._free[node][run.resource]
            found.append((node, [free.pop() for _ in range(run.size)]))
        return found

    def _start(self, run: Run, placed: list[tuple[str, list[str]]]) -> None:
        holding = admitted(run.waiting, queue=run.queue)
        for each in holding["status"]["admission"]["podSetAssignments"]:
            each["flavors"] = {run.resource: "f"}
        if self._fault == "admitted-late":
            holding = run.waiting
        self._put(holding)
        self._now_s += 0.1
        self._put({**run.body, "spec": {**run.body["spec"], "suspend": False}})
        run.admitted_s, run.ends_s = self._now_s, self._now_s + self._rng.uniform(5, 90)
        run.pods, run.ids, run.nodes = [], {}, {}
        self._running.append(run)
        for number, (node, ids) in enumerate(placed):
            self._made += 1
            body = pod(f"{run.body['metadata']['name']}-{self._made}", run.body, node="")
            self._put(body)
            self._now_s += 0.1
            if self._fault == "half" and number and number == run.count - 1:
                self._free[node][run.resource] += ids
                continue
            body = pod(body["metadata"]["name"], run.body, node=node)
            run.pods.append(body)
            run.ids[body["metadata"]["name"]], run.nodes[body["metadata"]["name"]] = ids, node
            line = {"node": node, "call": "Allocate", "pod": None, "resource": run.resource, "devices": ids}
            self._tell("kubelet", source="kubelet", **line)
            self._put(body)
            self._list_pods(node)
            if self._fault == "given-twice":
                self._free[node][run.resource] += ids

    def _end_those_due(self) -> None:
        for run in [each for each in self._running if each.ends_s <= self._now_s]:
            for body in run.pods:
                self._put(ended(body))
            self._now_s += 0.1
            self._put(having({**run.body, "spec": {**run.body["spec"], "suspend": False}}, "Complete"))
            if self._fault != "never-released":
                done = having(admitted(run.waiting, queue=run.queue), "Finished", "Succeeded")
                self._put(done)
            self._stop(run)

    def _evict_one(self) -> None:
        least_s = 0 if self._fault == "evicted-too-soon" else self._minimum_s
        old = [
            each for each in self._running if each.admitted_s is not None and self._now_s - each.admitted_s > least_s
        ]
        if not old:
            return
        run = self._rng.choice(old)
        holding = having(admitted(run.waiting, queue=run.queue), "Evicted", "Preempted")
        for each in holding["status"]["admission"]["podSetAssignments"]:
            each["flavors"] = {run.resource: "f"}
        self._put(holding)
        self._now_s += 0.1
        self._put(run.body)
        for body in run.pods:
            self._put(body if self._fault == "runs-on" else leaving(body))
        self._now_s += 0.5
        if self._fault != "kept-by-eviction":
            self._put(having(run.waiting, "Evicted", "Preempted"))
        if self._fault != "runs-on":
            for body in run.pods:
                self._put(body, "DELETED")
        self._stop(run)
        self._waiting.append(run)

    def _stop(self, run: Run) -> None:
        self._running.remove(run)
        for name, ids in run.ids.items():
            self._free[run.nodes[name]][run.resource] += ids
        for node in sorted(set(run.nodes.values())):
            self._list_pods(node)

    def _change_quota(self) -> None:
        name = self._rng.choice(list(self._queues))
        said = self._queues[name]
        said["nominal"] = self._rng.randint(1, 5)
        if said["lend"] is not None:
            said["lend"] = min(said["lend"], said["nominal"])
        self._put_queue(name)

    def _cut_again(self) -> None:
        """An instance that nobody has is destroyed, and another is made."""
        free = self._free["n2"][MIG]
        held = [each for each in self._mig if each not in free]
        open_to_it = held if self._fault == "destroyed" else free
        if not open_to_it:
            return
        old = self._rng.choice(open_to_it)
        self._made += 1
        new = f"MIG-n{self._made}"
        self._mig = [new if each == old else each for each in self._mig]
        if old in free:
            free.remove(old)
            free.append(new)
        self._show_hardware()

    def _reset_one(self) -> None:
        """A GPU that nobody has is reset, in no time."""
        since = {
            "GPU-m" if id_.startswith("MIG-") else id_.partition("::")[0]: (run.admitted_s or 0.0, run.ends_s)
            for run in self._running
            for ids in run.ids.values()
            for id_ in ids
        }
        every = [*(f"GPU-{node}{n}" for node in "ab" for n in range(6)), "GPU-m", "GPU-s"]
        free = [each for each in every if each not in since]
        if self._fault == "reset-held":
            now_s = self._now_s
            free = [each for each, (from_s, to_s) in since.items() if from_s + HELD_S < now_s < to_s - HELD_S]
        if free:
            uuid = self._chance.choice(free)
            self._resets[uuid] = self._resets.get(uuid, 0) + 1
            self._show_hardware()
