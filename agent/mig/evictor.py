"""Evicts pods that hold devices which a layout needs, by the API server's Eviction: budgets and grace periods are kept.

An eviction that a PodDisruptionBudget refuses is asked for again; one that was accepted is not, unless the pod is still
there long after.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import msgspec

from agent.words import mig as words
from failpoints import points
from failpoints.names import Failpoint
from kube.client import Client
from kube.clock import Clock, SystemClock
from kube.errors import KubeError, NotFoundError
from kube.resources import PODS

log = logging.getLogger(__name__)

RETRY_S = 5.0
AGAIN_S = 120.0
"""The seconds after which a pod that was evicted and still holds its device is evicted once more."""


class Evictor:
    """``want`` may be called at any time; ``follow`` (see agent.cluster.reporter.Follower) does the work."""

    def __init__(self, told: Callable[[str], None], clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._told = told
        self._wanted: frozenset[str] = frozenset()
        self._done_s: dict[str, float] = {}
        self._refused: dict[str, str] = {}
        self._changed = asyncio.Event()

    def want(self, pods: frozenset[str]) -> None:
        """Evict these pods (``namespace/name``) and no others from now on."""
        if pods != self._wanted:
            self._wanted = pods
            self._done_s = {pod: at_s for pod, at_s in self._done_s.items() if pod in pods}
            self._refused = {pod: why for pod, why in self._refused.items() if pod in pods}
            self._changed.set()

    async def follow(self, client: Client, node_name: str, random: Callable[[], float]) -> None:  # noqa: ARG002
        """Evict the wanted pods, until cancelled."""
        while True:
            self._changed.clear()
            left = [await self._evict(client, pod) for pod in sorted(self._wanted) if self._is_due(pod)]
            await self._clock.wait(self._changed, RETRY_S if self._wanted and not all(left) else AGAIN_S)

    def _is_due(self, pod: str) -> bool:
        at_s = self._done_s.get(pod)
        return at_s is None or self._clock.monotonic() - at_s >= AGAIN_S

    async def _evict(self, client: Client, pod: str) -> bool:
        namespace, _, name = pod.partition("/")
        body: dict[str, Any] = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
        }
        try:
            points.before(Failpoint.POD_EVICTED)
            await client.create(PODS, body, msgspec.Raw, name=name, namespace=namespace, subresource="eviction")
            points.after(Failpoint.POD_EVICTED)
        except NotFoundError:
            pass
        except KubeError as refused:
            log.warning("eviction refused", extra={"pod": pod, "error": str(refused)})
            self._tell_refusal(pod, str(refused))
            return False
        else:
            self._told(words.evicted(pod))
        self._refused.pop(pod, None)
        self._done_s[pod] = self._clock.monotonic()
        return True

    def _tell_refusal(self, pod: str, why: str) -> None:
        """Tell a refusal once for each reason: the eviction is tried every few seconds."""
        if self._refused.get(pod) != why:
            self._refused[pod] = why
            self._told(words.not_evicted_yet(pod, why))
