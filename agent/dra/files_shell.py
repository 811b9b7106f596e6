"""The files of claims: the ledger, and a CDI spec for each claim. All methods raise ClaimError and OSError, nothing
else.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from agent.config.settings import Settings
from agent.dra.answer import claim_of, claim_spec, earlier_file_name, file_name, file_prefix
from agent.dra.claim import ClaimError
from agent.dra.ledger import GivenDevice, Ledger, Prepared
from agent.kubelet.devicefiles import DeviceFiles
from agent.kubelet.driverfiles import NoDriverError
from agent.persistence.files import write_atomically
from agent.persistence.statefiles import read_state
from agent.words import claims as words
from deviceplugin.cdi import Spec
from deviceplugin.strategy import NodeAccess
from failpoints import points
from failpoints.names import Failpoint

LEDGER: Final = "claims.json"
VERSION: Final = 1


class Kept(Struct, frozen=True):
    """The ledger's file."""

    version: int = VERSION
    claims: tuple[Prepared, ...] = ()


class ClaimFiles:
    """The files of one node's claims, called by one task at a time. ``_node_spec`` is the spec of all devices, made for
    ``_made_for``; ``_written`` is what this process last wrote for each claim, and the access that it was made from.
    """

    def __init__(self, settings: Settings, devices: DeviceFiles) -> None:
        self._ledger = settings.state_dir / LEDGER
        self._cdi_dir = settings.cdi_dir
        self._driver = settings.dra_driver
        self._devices = devices
        self._mps_root = settings.mps_dir
        self._made_for: NodeAccess | None = None
        self._node_spec: Spec = {}
        self._written: dict[str, tuple[bytes, NodeAccess]] = {}

    def load(self) -> tuple[Prepared, ...]:
        """The claims in the ledger's file; none where it cannot be understood."""
        kept = read_state(self._ledger, Kept, lambda found: Ledger(found.claims).validate())
        return kept.claims if kept is not None and kept.version == VERSION else ()

    async def save(self, claims: Sequence[Prepared]) -> None:
        content = msgspec.json.encode(Kept(claims=tuple(claims)))
        await asyncio.to_thread(write_atomically, self._ledger, content, Failpoint.CLAIMS)

    async def write(
        self, claims: Iterable[Prepared], access: NodeAccess, unit: Callable[[GivenDevice], str | None]
    ) -> None:
        """Write the specs of ``claims``, from the node's files as they are now; ``unit`` gives each device's UUID."""
        for claim in claims:
            node = await self._spec_of(access)
            try:
                document = claim_spec(self._driver, claim, node, unit, self._mps_root)
            except KeyError as unknown:
                raise ClaimError(words.no_device_files(str(unknown.args[0]))) from None
            content = msgspec.json.format(msgspec.json.encode(document))
            path = self._cdi_dir / file_name(self._driver, claim.uid)
            there = self._written.get(claim.uid)
            if there is None or there[0] != content or not path.exists():
                await asyncio.to_thread(write_atomically, path, content, Failpoint.CLAIM_CDI, mode=0o644)
                # A device that stands in two specs can be given to no container.
                await asyncio.to_thread(_remove, self._earlier(claim.uid))
            self._written[claim.uid] = content, access

    def current(self, uid: str, access: NodeAccess) -> bool:
        """Whether the claim's spec exists and was made from the node's files as they are now."""
        there = self._written.get(uid)
        return there is not None and there[1] is access and (self._cdi_dir / file_name(self._driver, uid)).exists()

    async def remove(self, uid: str) -> None:
        self._written.pop(uid, None)
        for path in (self._cdi_dir / file_name(self._driver, uid), self._earlier(uid)):
            await asyncio.to_thread(_remove, path)

    def _earlier(self, uid: str) -> Path:
        """The spec file that another driver of this name, which had the node before, wrote for a claim that is the
        agent's now.
        """
        return self._cdi_dir / earlier_file_name(self._driver, uid)

    async def sweep(self, known: Collection[str]) -> None:
        """Remove the specs of all claims but ``known``, and files half written: a kill may leave both."""
        for path in await asyncio.to_thread(lambda: list(self._cdi_dir.glob(f".{file_prefix(self._driver)}*"))):
            await asyncio.to_thread(_remove, path)
        for path in await asyncio.to_thread(lambda: sorted(self._cdi_dir.glob(f"{file_prefix(self._driver)}*.json"))):
            uid = claim_of(self._driver, path.name)
            if uid is not None and uid not in known:
                await self.remove(uid)

    async def _spec_of(self, access: NodeAccess) -> Spec:
        # The spec is made once for all claims that come while the files are the same: it may take a program's run.
        if self._made_for is not access:
            try:
                self._node_spec = await self._devices.gpu_spec(access)
            except NoDriverError as missing:
                raise ClaimError(str(missing)) from None
            self._made_for = access
        return self._node_spec


def _remove(path: Path) -> None:
    points.before(Failpoint.CLAIM_CDI_REMOVED)
    path.unlink(missing_ok=True)
    points.after(Failpoint.CLAIM_CDI_REMOVED)
