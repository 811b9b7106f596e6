"""The claims that hold devices of this node: what the kubelet was told of each, and what may be given to the next.

    begin(taken, devices) -> Prepared (started); complete(uid); end(uid)

A claim is *started* from before anything is done for it until its answer stands, then *completed*. What is only
started after a restart was never answered, and is begun anew. Pure: the caller writes ``entries`` to disk before it
acts on a start, and before it answers.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

from msgspec import Struct, structs

from agent.dra.claim import ClaimError, Result, Taken
from inventory.devices import GpuUuid


class Stage(StrEnum):
    """How far a claim's preparation has come."""

    STARTED = "started"
    COMPLETED = "completed"


class GivenDevice(Struct, frozen=True):
    """One device in a claim's hand. ``request`` without a subrequest; ``admin`` devices are watched, not held."""

    request: str
    pool: str
    device: str
    gpu: GpuUuid
    share_id: str = ""
    admin: bool = False


class Prepared(Struct, frozen=True):
    """One claim. ``pods`` are those it was reserved for when it was prepared."""

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
    """Claims by UID. Written on the agent's event loop alone. ``validate`` holds: no device in two claims' hands."""

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
        """The claim, if its answer stands: a repeated call gets the same one."""
        found = self._claims.get(uid)
        return found if found is not None and found.stage is Stage.COMPLETED else None

    def begin(self, taken: Taken, gpus: Mapping[str, GpuUuid], pool: str, refused: Mapping[GpuUuid, str]) -> Prepared:
        """Start the claim. ``gpus`` are the pool's devices by name; ``refused`` says which GPUs take no new claim and
        why.

        Raises ClaimError, and nothing has changed, for a device that is not there, unfit, or in another claim's hand:
        after a claim was deleted by force the scheduler may give its device out before it is back.
        """
        devices = tuple(
            GivenDevice(
                request=result.main_request,
                pool=result.pool,
                device=result.device,
                gpu=self._fit(result, gpus, pool, {} if result.admin_access else refused),
                share_id=result.share_id,
                admin=result.admin_access,
            )
            for result in taken.results
        )
        ref = taken.ref
        holders = self._holders(but=ref.uid)
        for device in devices:
            holder = holders.get(device.gpu)
            if holder is not None and not device.admin:
                raise ClaimError(f"device {device.device} is held by ResourceClaim {holder.key} ({holder.uid})")
        started = Prepared(ref.uid, ref.namespace, ref.name, devices, taken.pods)
        self._claims[ref.uid] = started
        return started

    def complete(self, uid: str) -> Prepared:
        """Its answer stands from now on."""
        self._claims[uid] = structs.replace(self._claims[uid], stage=Stage.COMPLETED)
        return self._claims[uid]

    def end(self, uid: str) -> Prepared | None:
        """The claim gives its devices back; None where it has none, which is as good."""
        return self._claims.pop(uid, None)

    def restore(self, claim: Prepared) -> None:
        """Undo ``end``: that it gave its devices back could not be written down."""
        self._claims[claim.uid] = claim

    def held(self) -> dict[GpuUuid, Prepared]:
        """The claim that holds each GPU; admin access holds nothing."""
        return self._holders(but="")

    def validate(self) -> None:
        """Recompute: each claim under its UID, with devices, and none of them in another's hand."""
        hands: list[GpuUuid] = []
        for uid, claim in self._claims.items():
            assert claim.uid == uid, f"{uid} is filed under another claim"
            assert claim.devices, f"{claim.key} holds nothing"
            hands += dict.fromkeys(device.gpu for device in claim.devices if not device.admin)
        assert len(hands) == len(set(hands)), "a GPU is in two claims' hands"

    @staticmethod
    def _fit(result: Result, gpus: Mapping[str, GpuUuid], pool: str, refused: Mapping[GpuUuid, str]) -> GpuUuid:
        gpu = gpus.get(result.device) if result.pool == pool else None
        if gpu is None:
            raise ClaimError(f"device {result.device} of pool {result.pool}: this node offers no such device by claim")
        if gpu in refused:
            raise ClaimError(f"device {result.device}: {refused[gpu]}")
        return gpu

    def _holders(self, but: str) -> dict[GpuUuid, Prepared]:
        return {
            device.gpu: claim
            for uid, claim in self._claims.items()
            if uid != but
            for device in claim.devices
            if not device.admin
        }
