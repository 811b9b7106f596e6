"""Recent actions for failed GPUs, recorded for the next leader on a Lease of their own.

A new leader continues with the budget and the cool-downs. Rejected: to derive them from the cluster. An evicted pod
leaves no object, and Events expire after an hour.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

import msgspec

from controller.cluster.writing.stampedwrites import stamped_write, why_not
from controller.reconcile.failures.gpufailures import RecentActions
from failpoints.names import Failpoint
from inventory.api.names import GPU_FAILURE_ACTIONS
from kube.client import Client
from kube.errors import KubeError, NotFoundError
from kube.objects import Metadata
from kube.resources import LEASES
from kube.writing.writes import Abandoned, Conflicted, Missing, Outcome, Verb, Write, Written

log = logging.getLogger(__name__)

NAME: Final = "tessera-gpu-failures"
_TRIES: Final = 3


class GpuFailureRecord:
    """Reads and writes the record. ``namespace`` is the controller's own. The annotation has one writer, the leader: it
    is replaced as a whole, on top of the version that was read or written last, so that a former leader's record does
    not come after a newer one.
    """

    def __init__(
        self, client: Client, put: Callable[[Write[Any]], "asyncio.Future[Outcome[Any]]"], namespace: str
    ) -> None:
        self._client = client
        self._put = put
        self._namespace = namespace
        self._warned = False
        self._version = ""
        """The version of the Lease; empty while there is none."""

    async def read(self) -> RecentActions:
        """The recorded actions. Raises KubeError. An annotation that cannot be decoded counts as empty."""
        lease = await self._look()
        try:
            return msgspec.json.decode(lease.metadata.annotations.get(GPU_FAILURE_ACTIONS, "{}"), type=RecentActions)
        except msgspec.MsgspecError as error:
            log.warning("lease %s/%s: %s: %s; it counts as empty", self._namespace, NAME, GPU_FAILURE_ACTIONS, error)
            return RecentActions()

    async def _look(self) -> Metadata:
        try:
            lease = await self._client.get(LEASES, NAME, Metadata, namespace=self._namespace)
        except NotFoundError:
            lease = Metadata()
        self._version = lease.metadata.resource_version
        return lease

    async def write(self, recent: RecentActions) -> bool:
        """Writes the record. False if this replica does not lead any more. A record that cannot be written is logged
        once.
        """
        outcome = await self._put(self._write(recent))
        for _ in range(_TRIES):
            if not isinstance(outcome, Conflicted | Missing):
                break
            try:
                await self._look()  # somebody else has changed the Lease, or deleted it: what is to be recorded is ours
            except KubeError:
                break
            outcome = await self._put(self._write(recent))
        if isinstance(outcome, Written) and outcome.object is not None:
            self._version = outcome.object.metadata.resource_version
        if not isinstance(outcome, Written | Abandoned) and not self._warned:
            self._warned = True
            log.warning(
                "lease %s/%s cannot be written, a new leader begins with a full budget of GPU failures: %s",
                self._namespace,
                NAME,
                why_not(outcome),
            )
        return not isinstance(outcome, Abandoned)

    def _write(self, recent: RecentActions) -> Write[Any]:
        annotations = {GPU_FAILURE_ACTIONS: msgspec.json.encode(recent).decode()}
        metadata = {"name": NAME, "namespace": self._namespace, "annotations": annotations}
        if self._version:
            metadata["resourceVersion"] = self._version
        verb = Verb.MERGE_PATCH if self._version else Verb.CREATE
        body = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata}
        meta = {"namespace": self._namespace, "name": NAME}
        return stamped_write(verb, LEASES, meta, body, Failpoint.GPU_FAILURE_RECORD)
