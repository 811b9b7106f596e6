"""Small jobs for the queues, drawn from the seed: singles, gangs, whole GPUs, parts by the percent, MIG, claims.

Each runs for seconds, so that GPUs change hands all the time and a calm sees all of them through. A job counts as
accepted once the API server said so, not before.
"""

import random
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hack.chaos.api import JOBS, TEAM, Api, AwayError, RefusedError
from hack.chaos.invariants import JobUid, Json, is_true
from hack.cluster.controlplane.render import TEST_IMAGE
from inventory.api.names import GPU_PERCENT

GPU: Final = "nvidia.com/gpu"
HALF: Final = "nvidia.com/mig-3g.40gb"
CLAIMED: Final = "example.com/claimed-gpu"
CLASS: Final = "gpu.nvidia.com"
QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
QUOTA: Final[Mapping[str, Mapping[str, int]]] = {
    "research": {GPU: 2, GPU_PERCENT: 60, HALF: 1, CLAIMED: 1},
    "serving": {GPU: 1, GPU_PERCENT: 40, HALF: 1, CLAIMED: 0},
}
"""By queue; both lend to each other. There is one GPU more than that, so that a GPU that is lost leaves room."""
MOST_WAITING: Final = 8
PAUSE_S: Final = (0.5, 2.5)


@dataclass(frozen=True)
class Shape:
    """A job of so many pods with so much of a resource each."""

    resource: str
    amount: int
    pods: int = 1


SHAPES: Final = (
    Shape(GPU, 1),
    Shape(GPU, 2),
    Shape(GPU, 1, pods=2),
    Shape(GPU, 1, pods=3),
    Shape(GPU_PERCENT, 30),
    Shape(GPU_PERCENT, 50),
    Shape(GPU_PERCENT, 20, pods=3),
    Shape(HALF, 1),
    Shape(HALF, 1, pods=2),
    Shape(CLAIMED, 1),
)


def drawn(chance: random.Random, name: str) -> Json:
    """One job."""
    return job(name, chance.choice(SHAPES), chance.choice(list(QUOTA)), chance.randint(1, 5))


def job(name: str, shape: Shape, queue: str, runs_s: int) -> Json:
    """A suspended Job of ``shape`` that runs for so long once it is admitted."""
    claimed = shape.resource == CLAIMED
    ask: Json = {"claims": [{"name": "gpu"}]} if claimed else {"limits": {shape.resource: str(shape.amount)}}
    container = {
        "name": "main",
        "image": TEST_IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", f"trap 'exit 143' TERM; sleep {runs_s} & wait $!"],
        "resources": ask,
    }
    spec: Json = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
    }
    if claimed:
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    notes = {"kueue.x-k8s.io/podset-unconstrained-topology": "true"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": TEAM, "labels": {QUEUE_LABEL: queue}},
        "spec": {
            "suspend": True,
            "parallelism": shape.pods,
            "completions": shape.pods,
            "backoffLimit": 1000,
            "template": {"metadata": {"annotations": notes}, "spec": spec},
        },
    }


def nobodys(name: str) -> Json:
    """A Job that no queue holds and no GPU is for: when it ends, Kubernetes itself works. It goes by itself."""
    container = {"name": "main", "image": TEST_IMAGE, "imagePullPolicy": "Never", "command": ["true"]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "ttlSecondsAfterFinished": 300,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    }


class Load:
    """Submits while it is let. ``accepted`` is changed under ``_lock``: a thread submits, the campaign reads."""

    def __init__(self, api: Api, seed: int) -> None:
        self._api = api
        self._chance = random.Random(seed)
        self._lock = threading.Lock()
        self._go, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._accepted: dict[JobUid, str] = {}
        self._serial = 0
        self.submitted = 0
        self.completed = 0

    def start(self) -> None:
        self._thread.start()

    def resume(self) -> None:
        self._go.set()

    def pause(self) -> None:
        self._go.clear()

    def close(self) -> None:
        self._over.set()
        self._go.set()
        if self._thread.is_alive():
            self._thread.join(60)

    @property
    def accepted(self) -> dict[JobUid, str]:
        with self._lock:
            return dict(self._accepted)

    def forget(self, uids: set[JobUid]) -> None:
        """They are no longer answered for: etcd itself lost them, or they are over and deleted."""
        with self._lock:
            for uid in uids:
                self._accepted.pop(uid, None)

    def submit(self, body: Json) -> JobUid | None:
        """Create a job now; None where the API server did not say yes."""
        try:
            made = self._api.call("POST", JOBS, body)
        except (AwayError, RefusedError):
            return None
        uid = JobUid(made["metadata"]["uid"])
        with self._lock:
            self._accepted[uid] = made["metadata"]["name"]
        self.submitted += 1
        return uid

    def name(self) -> str:
        self._serial += 1
        return f"load-{self._serial}"

    def sweep(self) -> None:
        """Delete jobs that are complete. Raises AwayError, RefusedError."""
        for one in self._api.items(JOBS):
            if is_true(one, "Complete") and "deletionTimestamp" not in one["metadata"]:
                uid = JobUid(one["metadata"]["uid"])
                self.forget({uid})
                self._api.delete(f"{JOBS}/{one['metadata']['name']}")
                self.completed += 1

    def _run(self) -> None:
        while not self._over.wait(self._chance.uniform(*PAUSE_S)):
            self._go.wait()
            try:
                waiting = [one for one in self._api.items(JOBS) if not is_true(one, "Complete")]
            except (AwayError, RefusedError):
                continue
            if len(waiting) < MOST_WAITING and self._go.is_set() and not self._over.is_set():
                self.submit(drawn(self._chance, self.name()))
