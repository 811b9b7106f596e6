"""The claims that hold devices of this node: the answer that the kubelet got for each, and which devices the next claim
may have.

    begin(taken, offered) -> Prepared (started); complete(uid); end(uid)

A claim is *started* from before anything is done for it until its answer stands, then *completed*. A claim that is only
started after a restart was never answered, and is begun anew. Pure: the caller writes ``entries`` to disk before it
acts on a start, and before it answers.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct, structs

from agent.dra.claim import ClaimError, MpsClient, Ref, Result, Taken
from agent.dra.publishing.devices import DraDevice
from agent.dra.publishing.shares import NONE, Share, consumed
from agent.words import claims as words
from inventory.devices import GpuUuid
from inventory.mig.exact import overlap
from inventory.mig.plan import Slot


class Stage(StrEnum):
    """The stage of a claim's preparation."""

    STARTED = "started"
    COMPLETED = "completed"


class GivenDevice(Struct, frozen=True):
    """One device that a claim holds. ``request`` is without a subrequest; ``admin`` devices are watched, not held.

    ``mps``: the claim asks for a daemon. ``share`` is the share of the GPU, where several claims may have some.
    ``slot`` is the place of a MIG instance: its UUID is known once it exists, and may be another after a reboot.
    Without ``slot`` the device is the whole GPU.
    """

    request: str
    pool: str
    device: str
    gpu: GpuUuid
    share_id: str = ""
    admin: bool = False
    slot: Slot | None = None
    share: Share | None = None
    mps: MpsClient | None = None

    def excludes(self, other: "GivenDevice") -> bool:
        """Whether the two cannot be held by different claims: one is the other, or a part of it."""
        if self.admin or other.admin or self.gpu != other.gpu:
            return False
        if self.share is not None and other.share is not None:
            return self.share_id == other.share_id
        return self.slot is None or other.slot is None or overlap(self.slot, other.slot)


class Prepared(Struct, frozen=True):
    """One claim in the ledger. ``pods`` are those it was reserved for when it was prepared."""

    uid: str
    namespace: str
    name: str
    devices: tuple[GivenDevice, ...]
    pods: tuple[str, ...] = ()
    stage: Stage = Stage.STARTED

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class Ledger:
    """The claims by UID, written on the agent's event loop alone. ``validate`` holds: no device is held by two
    claims.
    """

    def __init__(self, entries: Iterable[Prepared] = ()) -> None:
        self._claims: dict[str, Prepared] = {}
        for entry in entries:
            if entry.stage is Stage.COMPLETED:
                self._claims[entry.uid] = entry

    @property
    def entries(self) -> tuple[Prepared, ...]:
        return tuple(self._claims.values())

    def __len__(self) -> int:
        return len(self._claims)

    def answered(self, uid: str) -> Prepared | None:
        """The claim if it is completed: a repeated call gets the same answer. Otherwise None."""
        found = self._claims.get(uid)
        return found if found is not None and found.stage is Stage.COMPLETED else None

    def begin(self, taken: Taken, offered: Mapping[str, DraDevice], pool: str, refused: Mapping[str, str]) -> Prepared:
        """Start the claim. ``offered`` are the pool's devices by name; ``refused`` says which of them take no new claim
        and why.

        Raises ClaimError, and nothing has changed, for a device that is not there, unfit, or held by another claim:
        after a claim was deleted by force the scheduler may give its device out before it is back.
        """
        clients = taken.mps or (None,) * len(taken.results)
        devices = tuple(
            self._given(result, offered, pool, refused, client)
            for result, client in zip(taken.results, clients, strict=True)
        )
        ref = taken.ref
        for number, device in enumerate(devices):
            holder = self._holder(device, but=ref.uid)
            if holder is not None:
                raise ClaimError(words.held(device.device, holder.key, holder.uid))
            for other in devices[:number]:
                if other.device != device.device and device.excludes(other):
                    raise ClaimError(words.overlapping(ref, other.device, device.device))
        self._check_shares(ref, devices, offered)
        _check_mps(ref, devices)
        started = Prepared(ref.uid, ref.namespace, ref.name, devices, taken.pods)
        self._claims[ref.uid] = started
        return started

    def complete(self, uid: str) -> Prepared:
        """Record that the claim's answer stands, and return it."""
        self._claims[uid] = structs.replace(self._claims[uid], stage=Stage.COMPLETED)
        return self._claims[uid]

    def end(self, uid: str) -> Prepared | None:
        """Remove the claim and return it; None where the ledger does not have it, which is as good."""
        return self._claims.pop(uid, None)

    def gpus(self) -> frozenset[GpuUuid]:
        """The GPUs that claims hold, whole or a part of them."""
        return frozenset(d.gpu for claim in self._claims.values() for d in claim.devices if not d.admin)

    def there(self, claim: Prepared) -> bool:
        """Whether the ledger has the claim as it was begun: it was not given back, nor begun anew."""
        return self._claims.get(claim.uid) is claim

    def restore(self, claim: Prepared) -> None:
        """Undo ``end``: the ledger without the claim could not be written to disk."""
        self._claims[claim.uid] = claim

    def validate(self) -> None:
        """Check that each claim stands under its UID and has devices, and that no device is held by two claims."""
        hands: list[tuple[str, GivenDevice]] = []
        for uid, claim in self._claims.items():
            assert claim.uid == uid, f"{uid} is filed under another claim"
            assert claim.devices, f"{claim.key} holds nothing"
            for device in claim.devices:
                rival = next((other for other, held in hands if other != uid and device.excludes(held)), None)
                assert rival is None, f"{device.device} is in the hands of {rival} and {uid}"
            hands += [(uid, device) for device in claim.devices]

    def shared(self, gpu: GpuUuid, but: str = "") -> Share:
        """The sum of the shares that claims have of a GPU that is given out by shares, without those of the claim
        ``but``.
        """
        mine = (
            device.share
            for uid, claim in self._claims.items()
            if uid != but
            for device in claim.devices
            if device.gpu == gpu and device.share is not None
        )
        return sum(mine, NONE)

    def _check_shares(self, ref: Ref, devices: Sequence[GivenDevice], offered: Mapping[str, DraDevice]) -> None:
        """Raises ClaimError for shares larger than what the GPU has left, and for those that no container could use."""
        shares = [device.share for device in devices if device.share is not None]
        if not shares:
            return
        gpus = {device.gpu for device in devices if not device.admin}
        if len(gpus) > 1:
            raise ClaimError(words.share_of_several(ref, len(gpus)))
        (gpu,) = gpus
        # A device that is watched may be another GPU's share, and says nothing of this one's size.
        held = (offered[device.device].shares for device in devices if device.share is not None)
        whole = next(each for each in held if each is not None)
        taken = sum(shares, self.shared(gpu, but=ref.uid))
        if not taken.within(whole):
            found, most = (f"{each.memory_mib} MiB and {each.percent} %" for each in (taken, whole))
            raise ClaimError(words.share_too_large(ref, gpu, found, most))

    @staticmethod
    def _given(
        result: Result,
        offered: Mapping[str, DraDevice],
        pool: str,
        refused: Mapping[str, str],
        client: MpsClient | None,
    ) -> GivenDevice:
        device = offered.get(result.device) if result.pool == pool else None
        if device is None:
            raise ClaimError(words.not_offered(result.device, result.pool))
        if device.name in refused and not result.admin_access:
            raise ClaimError(words.withheld(result.device, refused[device.name]))
        return GivenDevice(
            request=result.main_request,
            pool=result.pool,
            device=result.device,
            gpu=device.gpu,
            share_id=result.share_id,
            admin=result.admin_access,
            slot=device.slot,
            share=_share(result, device),
            mps=None if result.admin_access else client,
        )

    def _holder(self, wanted: GivenDevice, but: str) -> Prepared | None:
        others = (claim for uid, claim in self._claims.items() if uid != but)
        return next((claim for claim in others if any(map(wanted.excludes, claim.devices))), None)


def _share(result: Result, device: DraDevice) -> Share | None:
    """The share that the result has of its device; None where the device is not given out by shares. Raises
    ClaimError.
    """
    if device.shares is None or result.admin_access:
        return None
    return consumed(result.consumed_capacity, result.driver, f"device {result.device}")


def _check_mps(ref: Ref, devices: Sequence[GivenDevice]) -> None:
    """Raises ClaimError for devices that no daemon can serve."""
    parts: Counter[int] = Counter()
    for device in devices:
        if device.mps is not None and device.share is not None:
            raise ClaimError(words.mps_under_mps(ref))
        if device.mps is not None and device.slot is not None:
            parts[device.mps.group] += 1
    if any(count > 1 for count in parts.values()):
        raise ClaimError(words.several_instances(ref, max(parts.values())))
