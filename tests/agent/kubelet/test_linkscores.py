"""Preferred sets are worked out before pods are let in, for a moment at most, and for every new table after that."""

from collections.abc import Iterator
from typing import cast

from agent.kubelet.linkscores import FILL_FIRST_S, LinkScores
from inventory.preference.linktable import LinkTable


class Table:
    """``pieces`` pieces of work, each of which takes ``piece_s`` on the clock of ``now``."""

    def __init__(self, pieces: int, piece_s: float) -> None:
        self.pieces, self.piece_s = pieces, piece_s
        self.done, self.now_s = 0, 0.0

    def fill(self) -> Iterator[None]:
        for _ in range(self.pieces):
            self.done += 1
            self.now_s += self.piece_s
            yield


def scores(table: Table) -> LinkScores:
    return LinkScores(lambda: cast("LinkTable", table), lambda: table.now_s)


async def test_a_regular_machine_is_done_at_once() -> None:
    table = Table(pieces=20, piece_s=0.001)
    await scores(table).begin()
    assert table.done == table.pieces


async def test_a_machine_that_takes_long_holds_nobody_up() -> None:
    table = Table(pieces=1000, piece_s=0.01)
    await scores(table).begin()
    assert FILL_FIRST_S <= table.now_s < 2 * FILL_FIRST_S
