"""A job of a declared kind and its Workloads, with a controller of the kind that takes its time."""

from collections.abc import Callable

from controller.cluster.config.settings import INJECTED
from controller.jobs.framework.raw import Json
from controller.jobs.framework.settings import JobSettings
from controller.jobs.framework.templated import TemplatedKind
from tests.support.controller.jobmodel import World


class KindWorld(World):
    """``run`` writes into the status that pods run, or with False that none do; the rest is as for Jobs.

    The API server lets any change of the spec through. ``seen`` is what the kind's controller last acted upon.
    """

    def __init__(self, kind: TemplatedKind, job: Json, run: Callable[[Json, bool], None]) -> None:
        super().__init__(job, kind=kind, settings=JobSettings(injected=INJECTED))
        self._declared = kind
        self._run = run

    def _check_spec(self, old: Json, new: Json) -> None:
        """No rules."""

    def is_finished(self) -> bool:
        return self.job is not None and self._declared.finished(self.job) is not None

    def job_controller(self) -> None:
        if self.job is None or self.is_finished():
            return
        before = repr(self.job["status"])
        suspended = self._declared.is_suspended(self.job)
        conditions = [one for one in self.job["status"].get("conditions", []) if one["type"] != "Suspended"]
        conditions.append({"type": "Suspended", "status": "True" if suspended else "False"})
        self.job["status"]["conditions"] = conditions
        self._run(self.job, not suspended)
        if repr(self.job["status"]) != before:
            self._touch(self.job)

    def suspended(self) -> bool:
        assert self.job is not None
        return self._declared.is_suspended(self.job)
