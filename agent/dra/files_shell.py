"""The files of claims: the ledger, and a CDI spec for each claim. Raises ClaimError and OSError, nothing else."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from agent.dra.answer import FILE_PREFIX, claim_of, claim_spec, file_name
from agent.dra.claim import ClaimError
from agent.dra.ledger import GivenDevice, Ledger, Prepared
from agent.keeping.files import write_atomically
from agent.keeping.statefiles import read_state
from agent.kubelet.devicefiles import DeviceFiles
from agent.kubelet.driverfiles import NoDriverError
from deviceplugin.cdi import Spec
from deviceplugin.strategy import NodeAccess

LEDGER: Final = "claims.json"
VERSION: Final = 1


class Kept(Struct, frozen=True):
    """The ledger's file."""

    version: int = VERSION
    claims: tuple[Prepared, ...] = ()


class ClaimFiles:
    """Of one node. Called by one task at a time. ``_node_spec`` is the spec of all devices, made for ``_made_for``;
    ``_written`` is what this process last wrote for each claim.
    """

    def __init__(self, state_dir: Path, cdi_dir: Path, devices: DeviceFiles, mps_root: Path) -> None:
        self._ledger = state_dir / LEDGER
        self._cdi_dir = cdi_dir
        self._devices = devices
        self._mps_root = mps_root
        self._made_for: NodeAccess | None = None
        self._node_spec: Spec = {}
        self._written: dict[str, bytes] = {}

    def load(self) -> tuple[Prepared, ...]:
        """What was kept; nothing where that cannot be understood."""
        kept = read_state(self._ledger, Kept, lambda found: Ledger(found.claims).validate())
        return kept.claims if kept is not None and kept.version == VERSION else ()

    async def save(self, claims: Sequence[Prepared]) -> None:
        content = msgspec.json.encode(Kept(claims=tuple(claims)))
        await asyncio.to_thread(write_atomically, self._ledger, content)

    async def write(
        self, claims: Iterable[Prepared], access: NodeAccess, unit: Callable[[GivenDevice], str | None]
    ) -> None:
        """The specs of ``claims``, as the node's files are now; ``unit`` says what each device is."""
        for claim in claims:
            node = await self._spec_of(access)
            try:
                document = claim_spec(claim, node, unit, self._mps_root)
            except KeyError as unknown:
                raise ClaimError(f"device {unknown.args[0]} has no device files") from None
            content = msgspec.json.format(msgspec.json.encode(document))
            path = self._cdi_dir / file_name(claim.uid)
            if self._written.get(claim.uid) != content or not path.exists():
                await asyncio.to_thread(write_atomically, path, content, mode=0o644)
                self._written[claim.uid] = content

    async def remove(self, uid: str) -> None:
        self._written.pop(uid, None)
        await asyncio.to_thread((self._cdi_dir / file_name(uid)).unlink, missing_ok=True)

    async def sweep(self, known: Collection[str]) -> None:
        """Remove the specs of all claims but ``known``: a kill may leave them."""
        for path in await asyncio.to_thread(lambda: sorted(self._cdi_dir.glob(f"{FILE_PREFIX}*.json"))):
            uid = claim_of(path.name)
            if uid is not None and uid not in known:
                await self.remove(uid)

    async def _spec_of(self, access: NodeAccess) -> Spec:
        # Made once for all claims that come while the files are the same: it may take a program's run.
        if self._made_for is not access:
            try:
                self._node_spec = await self._devices.gpu_spec(access)
            except NoDriverError as missing:
                raise ClaimError(str(missing)) from None
            self._made_for = access
        return self._node_spec
