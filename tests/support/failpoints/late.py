"""A leader's write that arrives when another one leads and has gone on, and the table of what then becomes of it."""

import re
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from failpoints.names import Failpoint
from hack.failpoints.durable import read, sources
from kube.testing import eventually
from tests.support.failpoints.cluster import Act, Dead, KilledCluster, Stage
from tests.support.failpoints.wire import Sent, Wire
from tests.support.hang import HANG_S

ROOT: Final = Path(__file__).parents[3]
_ROW: Final = re.compile(r"\| `(api\.[^`]+)` \| (.+) \| (.+) \| (.+) \|")


class Row(NamedTuple):
    """Of the table in docs/failpoints.md. ``carries``: a verb, and what of the object must be as it was."""

    writer: str
    carries: frozenset[str]
    late: str

    @property
    def is_refused(self) -> bool:
        return self.late == "refused"


@cache
def table() -> dict[Failpoint, Row]:
    rows = {}
    for line in (ROOT / "docs" / "failpoints.md").read_text().splitlines():
        if found := _ROW.fullmatch(line):
            carries = frozenset(re.findall(r"`([^`]+)`", found[3]))
            rows[Failpoint(found[1])] = Row(found[2], carries, found[4])
    return rows


@cache
def of_the_controller() -> frozenset[Failpoint]:
    """Writes of the API server that some replica of the controller makes, by the code that names them."""
    names = {
        name
        for path in sources(ROOT)
        if path.relative_to(ROOT).parts[0] in ("controller", "kube")
        for name in read(path.read_text()).named
    }
    return frozenset(failpoint for name in names if (failpoint := Failpoint[name]).startswith("api."))


class LateCluster(KilledCluster):
    """``server`` is a ``Wire``."""

    async def play_late(self, act: Act, number: int, failpoint: Failpoint) -> tuple[Sent, list[int]]:
        """One act. The first write of ``failpoint`` is kept back while its leader ends and the next one takes over; it
        arrives at the end of each stage from then on, and again all others of ``failpoint`` that are tied to a version.
        It, and the status of each answer.
        """
        wire = self.server
        assert isinstance(wire, Wire)
        wire.kept, wire.keeps, wire.on_kept = None, failpoint, self.deaths.die
        self.deaths.life()
        answers: list[int] = []
        stages = act.stages(self, f"{number}")
        for stage in stages:
            stage.deed()
            if not await self._ends(stage, last=stage is stages[-1]):
                await self.bury()
                wire.cuts = False
                await self.start()
                await self.until(stage.until, f"{stage.what} after {failpoint} was kept back")
            if wire.kept is not None:
                tied = [sent for sent in wire.sent if sent.failpoint is failpoint and "resourceVersion" in sent.ties]
                answers += [wire.arrives(sent) for sent in (wire.kept, *tied)]
                await self.until(stage.until, f"{stage.what} after {failpoint} came late")
        assert wire.kept is not None
        return wire.kept, answers

    async def _ends(self, stage: Stage, *, last: bool) -> bool:
        """False: the write was kept back, and its sender has died."""
        wire = self.server
        assert isinstance(wire, Wire)
        try:
            await self.until(stage.until, stage.what)
        except Dead:
            return False
        if last and wire.kept is None:  # what was waited for was seen before the controller came to the write
            await eventually(lambda: self.deaths.is_dead, within_s=HANG_S, what=f"{wire.keeps} was never written")
            return False
        return True
