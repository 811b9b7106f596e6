"""An admission check of somebody else's: workloads of one queue wait for it when they have quota, and it says yes.

It answers some of those that ask in each round, so that an answer comes at once or seconds later. It writes as such
controllers do: the state of its own check, at the version that it has read.
"""

import contextlib
import random
import threading
import time
from typing import Final

from hack.chaos.api import QUEUES, WORKLOADS, Api, AwayError, RefusedError
from hack.chaos.invariants import Json, is_true

CHECK: Final = "approval"
CONTROLLER: Final = "example.com/approval"
CHECKED: Final = "serving"
"""The ClusterQueue that asks for it."""
AT: Final = f"{QUEUES}/admissionchecks"
_EVERY_S: Final = 0.7
_ANSWERED: Final = 0.5


def answer(workload: Json, now: str) -> Json | None:
    """The merge patch of the status that says yes; None where nothing is asked."""
    states: list[Json] = workload.get("status", {}).get("admissionChecks", [])
    asks = any(each["name"] == CHECK and each["state"] == "Pending" for each in states)
    if not asks or not is_true(workload, "QuotaReserved") or is_true(workload, "Finished"):
        return None
    said = {"state": "Ready", "message": "approved", "lastTransitionTime": now}
    answered = [{**each, **said} if each["name"] == CHECK else each for each in states]
    return {
        "metadata": {"resourceVersion": workload["metadata"]["resourceVersion"]},
        "status": {"admissionChecks": answered},
    }


def active(check: Json, now: str) -> Json | None:
    """The merge patch of the status that says that somebody answers; None where it says so."""
    if is_true(check, "Active"):
        return None
    condition = {"type": "Active", "status": "True", "reason": "Active", "message": "", "lastTransitionTime": now}
    return {"status": {"conditions": [condition]}}


class Checks:
    """A thread that answers until ``close``."""

    def __init__(self, api: Api, seed: int) -> None:
        self._api = api
        self._chance = random.Random(seed)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="checks", daemon=True)
        self.answered = 0

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(60)

    def _run(self) -> None:
        while not self._over.wait(_EVERY_S):
            with contextlib.suppress(AwayError, RefusedError):
                self.look()

    def look(self) -> None:
        """One round. Raises AwayError, RefusedError."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        for check in self._api.items(AT):
            if (said := active(check, now)) is not None:
                self._api.patch(f"{AT}/{check['metadata']['name']}/status", said)
        for workload in self._api.items(WORKLOADS):
            yes = answer(workload, now)
            if yes is not None and self._chance.random() < _ANSWERED:
                with contextlib.suppress(RefusedError):  # it was written meanwhile: again in the next round
                    self._api.patch(f"{WORKLOADS}/{workload['metadata']['name']}/status", yes)
                    self.answered += 1
