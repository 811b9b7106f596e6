"""Records what happens to devices and what is wrong: in the log, in the agent's figures and with the reporter."""

import logging
from collections.abc import Iterable

from agent.cluster.reporter import Reporter
from agent.health.states import Transition
from agent.serving.metrics import AgentMetrics

log = logging.getLogger(__name__)


class Recorder:
    """Tells each problem and each note once, when it is new. ``problems`` are those that hold, ``notes`` those that
    were logged last.
    """

    def __init__(self, metrics: AgentMetrics, reporter: Reporter) -> None:
        self._metrics = metrics
        self._reporter = reporter
        self.problems: tuple[str, ...] = ()
        self.notes: tuple[str, ...] = ()

    def transitions(self, transitions: Iterable[Transition]) -> None:
        """Log the changes of health states, count them, and report them."""
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
            self._reporter.transition(change)

    def problems_are(self, problems: tuple[str, ...]) -> None:
        """Take all problems that hold now; a problem is told when it is new, not at each discovery."""
        for problem in problems:
            if problem not in self.problems:
                log.warning("problem", extra={"problem": problem})
                self._reporter.problem(problem)
        self.problems = problems

    def note(self, notes: tuple[str, ...]) -> None:
        """Take all notes that hold now: settings that were carried out and may surprise. Each is logged once, and not
        reported.
        """
        for line in notes:
            if line not in self.notes:
                log.info("note", extra={"note": line})
        self.notes = notes
