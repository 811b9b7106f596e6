"""What the judge of histories says of a campaign, as the figures of its last line. Pure.

The judge adds up what pods ask for and what kubelets and hardware say, and believes no status where it can count.
"""

from collections.abc import Iterable
from typing import Final

from hack.chaos.invariants import Findings
from history.judge import Finding, Judge
from history.record import Fact, HardwareFact, KubeletFact
from history.rule import LATE_S

JUDGED_S: Final = LATE_S + 1.0
"""What began by now has counted after so long."""
DOUBLED: Final = frozenset({"one-device-two-hands", "destroyed-while-held", "reset-while-held"})
UNPAID: Final = frozenset({"over-quota", "ran-without-admission", "released-early"})
"""Somebody has what no quota was given for."""


class Verdicts:
    """On one record: facts are taken in their order, and a finding is told once.

    Rules that no fault excuses are figures of the last line. The others (``forgotten``, ``half-gang``,
    ``out-of-order``) say that something comes in time and in order, which no controller does that sleeps, or sees what
    was a minute ago: they are told in ``late``, and what is still so in a calm is unsettled.
    """

    def __init__(self) -> None:
        self._judge = Judge()
        self._told: set[Finding] = set()
        self.late: list[str] = []
        self.heard: set[str] = set()
        """Sources and calls of nodes that said anything: without them nothing of a device was judged."""

    def take(self, facts: Iterable[Fact]) -> Findings:
        """What these facts add to what was found before."""
        for fact in facts:
            self._judge.take(fact)
            if isinstance(fact, KubeletFact | HardwareFact):
                self.heard.add("hardware" if isinstance(fact, HardwareFact) else fact.call)
        new = [each for each in self._judge.verdict().findings if each not in self._told]
        self._told.update(new)
        self.late += [_line(each) for each in new if each.rule not in DOUBLED | UNPAID]
        return Findings(
            doubled={_line(each) for each in new if each.rule in DOUBLED},
            over_quota={_line(each) for each in new if each.rule in UNPAID},
        )


def _line(found: Finding) -> str:
    return f"{found.rule} from {found.t:.1f} s on: {', '.join(found.objects)}: {found.message}"
