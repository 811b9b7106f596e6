"""Gives back claims that the kubelet never will: one that was set up anew has forgotten what the ledger still holds."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from agent.dra.claim import RESOURCE_CLAIMS, Claim
from agent.dra.ledger import Ledger, Prepared
from kube.client import Client
from kube.errors import KubeError, NotFoundError

LOOK_S: Final = 300.0
CALL_TIMEOUT_S: Final = 20.0
"""The time limit in seconds of one claim's GET: the kubelet waits 45 s for a whole prepare."""


class Forgotten:
    """Gives back each claim that no container uses and that the API server does not have, once two looks in a row found
    it so. ``_gone`` are the UIDs that the last look found so.
    """

    def __init__(
        self, ledger: Ledger, in_use: Callable[[Prepared], bool], give_back: Callable[[Prepared], Awaitable[None]]
    ) -> None:
        self._ledger = ledger
        self._in_use = in_use
        self._give_back = give_back
        self._looked_at_s = float("-inf")
        self._gone: set[str] = set()

    async def look(self, client: Client | None) -> None:
        now_s = time.monotonic()
        if client is None or now_s < self._looked_at_s + LOOK_S:
            return
        self._looked_at_s = now_s
        unused = [claim for claim in self._ledger.entries if not self._in_use(claim)]
        gone = [claim for claim in unused if await _is_gone(client, claim)]
        for claim in gone:
            if claim.uid in self._gone:
                await self._give_back(claim)
        self._gone = {claim.uid for claim in gone} - self._gone


async def _is_gone(client: Client, claim: Prepared) -> bool:
    try:
        async with asyncio.timeout(CALL_TIMEOUT_S):
            current = await client.get(RESOURCE_CLAIMS, claim.name, Claim, namespace=claim.namespace)
    except NotFoundError:
        return True
    except (KubeError, TimeoutError):
        return False
    return current.metadata.uid != claim.uid
