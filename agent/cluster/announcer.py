"""Says what happens to devices and what is wrong: in the log, in the agent's figures and on the outlet."""

import logging
from collections.abc import Iterable

from agent.cluster.outlet import Outlet
from agent.health.states import Transition
from agent.serving.metrics import AgentMetrics

log = logging.getLogger(__name__)


class Announcer:
    """``problems`` are those that were complained about last, ``notes`` those that were told last."""

    def __init__(self, metrics: AgentMetrics, outlet: Outlet) -> None:
        self._metrics = metrics
        self._outlet = outlet
        self.problems: tuple[str, ...] = ()
        self.notes: tuple[str, ...] = ()

    def tell(self, transitions: Iterable[Transition]) -> None:
        """Devices have changed their health state."""
        for change in transitions:
            level = logging.INFO if change.new.advertised_healthy else logging.WARNING
            log.log(
                level,
                "health",
                extra={
                    "gpu": change.gpu,
                    "mig": change.mig,
                    "old": change.old.value,
                    "new": change.new.value,
                    "reason": change.reason,
                    "cause": change.cause,
                    "after_s": round(change.age_s, 1),
                },
            )
            self._metrics.transition(change)
            self._outlet.transition(change)

    def complain(self, problems: tuple[str, ...]) -> None:
        """These are all there are: each is said when it is new, not at each discovery."""
        for problem in problems:
            if problem not in self.problems:
                log.warning("problem", extra={"problem": problem})
                self._outlet.problem(problem)
        self.problems = problems

    def note(self, notes: tuple[str, ...]) -> None:
        """What is as it was asked for and may surprise: a line in the log alone, once."""
        for line in notes:
            if line not in self.notes:
                log.info("note", extra={"note": line})
        self.notes = notes
