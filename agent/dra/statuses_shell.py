"""Writes ``status.devices`` of the claims that this node has prepared, and takes them away from those given back.

    show(statuses of each claim) -> StatusWriter -> API server, one claim after the other, only what differs

Nothing waits for it: a prepare is answered before. Entries are written by server-side apply, so that no other writer's
are touched. Kubernetes itself drops those of a device that is deallocated: an entry that cannot be taken away goes
then.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct

from agent.config.settings import FIELD_MANAGER
from agent.dra.claim import RESOURCE_CLAIMS, Claim, DeviceStatus, Ref
from agent.dra.ledger import Prepared
from agent.dra.statuses import same, timed
from agent.process.spread import fleet_backoff
from agent.words import node as words
from failpoints import points
from failpoints.names import Failpoint
from kube.client import Client
from kube.clock import Backoff, Clock, SystemClock
from kube.errors import ConflictError, ForbiddenError, InvalidError, KubeError, NotFoundError

log = logging.getLogger(__name__)

INTERVAL_S: Final = 0.05
REFUSED_S: Final = 600.0
"""The pause in seconds after an answer that only an administrator can change."""


class Said(Struct, frozen=True):
    """The statuses that a claim has of its devices."""

    ref: Ref
    devices: tuple[DeviceStatus, ...] = ()


class StatusWriter:
    """A follower of the API server. ``show`` and ``seen`` return at once; ``say`` gets the problems, one line each.

    By UID: ``_wanted`` are the claims of the last ``show``, ``_there`` what the API server has as far as it is known.
    ``_due`` are those of which the two may differ, the next first; ``_refused`` those that may not be written, with
    nothing due, and ``_told`` says whether that was reported. Once the server was seen to keep no statuses ``_kept`` is
    False for good.
    """

    def __init__(self, driver: str, say: Callable[[tuple[str, ...]], None], clock: Clock | None = None) -> None:
        self._driver = driver
        self._say = say
        self._clock = clock or SystemClock()
        self._wanted: dict[str, Said] = {}
        self._there: dict[str, Said] = {}
        self._due: dict[str, None] = {}
        self._refused: set[str] = set()
        self._told = False
        self._kept = True
        self._wake = asyncio.Event()

    def seen(self, ref: Ref, devices: tuple[DeviceStatus, ...]) -> None:
        """Take the statuses that the claim had when it was read, before it was prepared."""
        if self._kept:
            self._there[ref.uid] = Said(ref, devices)

    def show(self, claims: Mapping[str, tuple[Prepared, tuple[DeviceStatus, ...]]]) -> None:
        """Let these claims show exactly these statuses, and others none; without times."""
        wanted = {uid: Said(Ref(claim.namespace, claim.name, uid), devices) for uid, (claim, devices) in claims.items()}
        changed = {uid for uid in {*wanted, *self._wanted} if wanted.get(uid) != self._wanted.get(uid)}
        self._wanted = wanted
        if changed and self._kept:
            self._due.update(dict.fromkeys(sorted(changed)))
            self._refused -= changed
            self._wake.set()

    @property
    def settled(self) -> bool:
        """Whether every status that can be written is."""
        return not self._due

    async def follow(self, client: Client, random: Callable[[], float]) -> None:
        """Write until cancelled."""
        backoff = fleet_backoff(random)
        while True:
            if not self._due:
                self._wake.clear()
                if not await self._clock.wait(self._wake, REFUSED_S if self._refused else None):
                    self._due.update(dict.fromkeys(sorted(self._refused)))
                    self._refused.clear()
                continue
            await self._clock.wait(asyncio.Event(), await self._attempt(client, next(iter(self._due)), backoff))

    async def _attempt(self, client: Client, uid: str, backoff: Backoff) -> float:
        """Write the statuses of one claim; return the pause before the next one, in seconds."""
        wanted = self._wanted.get(uid)
        try:
            await self._settle(client, uid, wanted)
        except (ConflictError, InvalidError, NotFoundError) as gone:
            # Another claim has the name, or the devices are deallocated: there is nothing left to write.
            log.info("claim's status not written", extra={"uid": uid, "error": str(gone)})
            self._there.pop(uid, None)
        except ForbiddenError as refused:
            if not self._told:
                self._told = True
                self._say((words.statuses_refused(str(refused)),))
            self._refused.add(uid)
        except KubeError as error:
            log.info("claim's status not written yet", extra={"uid": uid, "error": str(error)})
            # The claim goes behind the others: one that fails for itself holds up none of them.
            self._due.pop(uid)
            self._due[uid] = None
            return backoff.next()
        backoff.reset()
        if self._wanted.get(uid) == wanted:
            self._due.pop(uid, None)
        return INTERVAL_S

    async def _settle(self, client: Client, uid: str, wanted: Said | None) -> None:
        there = self._there.get(uid)
        if there is None and wanted is not None:
            # An earlier agent prepared the claim, and may have written its statuses.
            found = await client.get(RESOURCE_CLAIMS, wanted.ref.name, Claim, namespace=wanted.ref.namespace)
            if found.metadata.uid != uid:
                return
            there = self._there[uid] = Said(wanted.ref, found.status.said_by(self._driver))
        if there is None:
            return
        devices = () if wanted is None else wanted.devices
        if not same(devices, there.devices):
            devices = timed(devices, there.devices, self._clock.wall())
            kept = await self._write(client, there.ref, devices)
            if devices and not kept:
                self._kept = False
                self._due.clear()
                self._there.clear()
                self._say((words.statuses_not_kept(),))
                return
            self._there[uid] = Said(there.ref, devices)
            if self._told and not self._refused:
                self._told = False
                self._say(())
        if wanted is None:
            del self._there[uid]

    async def _write(self, client: Client, ref: Ref, devices: tuple[DeviceStatus, ...]) -> tuple[DeviceStatus, ...]:
        """Apply the statuses; return those that the server has then."""
        body = {
            "apiVersion": RESOURCE_CLAIMS.api_version,
            "kind": RESOURCE_CLAIMS.kind,
            "metadata": {"name": ref.name, "namespace": ref.namespace, "uid": ref.uid},
            "status": {"devices": list(map(_body, devices))} if devices else {},
        }
        points.before(Failpoint.CLAIM_STATUS)
        stored = await client.apply(
            RESOURCE_CLAIMS,
            ref.name,
            body,
            Claim,
            field_manager=FIELD_MANAGER,
            force=True,
            namespace=ref.namespace,
            subresource="status",
        )
        points.after(Failpoint.CLAIM_STATUS)
        return stored.status.said_by(self._driver)


def _body(status: DeviceStatus) -> dict[str, Any]:
    body: dict[str, Any] = {"driver": status.driver, "pool": status.pool, "device": status.device}
    if status.share_id:
        body["shareID"] = status.share_id
    if status.data is not None:
        body["data"] = status.data
    return {**body, "conditions": list(status.conditions or ())}
