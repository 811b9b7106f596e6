"""The webhook for claims with its pods: from the watch, or from the API server if the claim comes before the watch has
its pod. Without an answer within a second, and for a pod that does not exist, nothing is planned.

The port authenticates nobody: few pods are requested at a time, and a claim does not wait for a place among them.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from controller.cluster.watching.kinds import PODS
from controller.cluster.webhooks import claims
from controller.cluster.webhooks.claims import OwnerPod
from controller.objects.core import Pod
from inventory.api.names import CLAIM_DEVICES
from kube.client import Client
from kube.errors import KubeError
from kube.objects import Metadata

log = logging.getLogger(__name__)

_WAITS_S: Final = 0.4
"""The longest wait for a pod, below the half second for which the process that serves webhooks waits."""
_AT_ONCE: Final = 8
_REST_S: Final = 0.1
"""The time after its answer at which a place is free again: at most 80 pods a second are requested, whoever sends
reviews."""


class ClaimAnswers:
    """Answers reviews of claims. ``seen``: a pod as the watch has it, by namespace and name; None for an unknown
    one.
    """

    def __init__(self, client: Client, seen: Callable[[str, str], Pod | None]) -> None:
        self._client = client
        self._seen = seen
        self._places = _AT_ONCE

    async def answer(self, body: bytes) -> bytes:
        """The answer to a review."""
        owner = claims.owner(body)
        return claims.answer(body, "" if owner is None else await self.planned(owner))

    async def planned(self, owner: OwnerPod) -> str:
        """The pod's annotation; empty if nothing is planned for it, or if the pod is not known in time."""
        known = self._seen(owner.namespace, owner.name)
        if known is not None and known.metadata.uid == owner.uid:
            return known.metadata.annotations.get(CLAIM_DEVICES, "")
        if not self._places:
            return ""
        self._places -= 1
        try:
            async with asyncio.timeout(_WAITS_S):
                pod = await self._client.get(PODS, owner.name, Metadata, namespace=owner.namespace)
        except (KubeError, TimeoutError) as error:
            log.debug("the pod of a claim is not known: %s/%s: %s", owner.namespace, owner.name, error)
            return ""
        finally:
            asyncio.get_running_loop().call_later(_REST_S, self._free)
        return pod.metadata.annotations.get(CLAIM_DEVICES, "") if pod.metadata.uid == owner.uid else ""

    def _free(self) -> None:
        self._places += 1
