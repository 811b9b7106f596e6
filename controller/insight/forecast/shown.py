"""Forecasts as JSON, as users see them. Workloads are named ``NAMESPACE/NAME``, so that
``controller.people.visibility`` finds what a user may not see.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from controller.insight.forecast.changes.changes import Change
from controller.insight.forecast.forecast import Forecast
from controller.messages import restarts as words
from controller.messages.spans import moment, starts
from controller.scheduler.model.resources import WorkloadKey

Json = dict[str, Any]
AHEAD_SHOWN: Final = 5
_SOON_S: Final = 60.0


class Foretold(NamedTuple):
    """Forecasts of one moment. ``changes``: what would admit the one workload that was asked about now. ``view``: the
    whole answer about units of LocalQueues; None for other questions.
    """

    forecasts: Mapping[WorkloadKey, Forecast] = {}
    changes: tuple[Change, ...] = ()
    view: Json | None = None


def brief(forecast: Forecast | None) -> Json | None:
    """The range alone, for a row of a list: seconds from ``at``, each None where nothing is known. ``never``: what
    would have to change for a workload that never starts as things are. ``notBefore``: what its queues wait for.
    """
    if forecast is None:
        return None
    return {
        "at": forecast.at_s,
        "fromSeconds": forecast.from_s,
        "likelySeconds": forecast.likely_s,
        "toSeconds": forecast.to_s,
        "never": forecast.never,
        "notBefore": forecast.not_before,
    }


def starts_again(forecast: Forecast) -> str:
    """When a victim of preemption is likely to start again, as a sentence that may be kept: it names moments."""
    low_s, high_s, now_s = forecast.from_s, forecast.to_s, forecast.at_s
    if forecast.never is not None:
        return words.starts_again_never(forecast.never)
    if low_s is None:
        if forecast.not_before is not None:
            return words.starts_again_not_before(forecast.not_before)
        return words.starts_again_unknown()
    if high_s is None:
        return words.starts_again_after(moment(now_s + low_s))
    if moment(now_s + low_s) == moment(now_s + high_s) or low_s < _SOON_S:
        return words.starts_again_by(moment(now_s + high_s))
    return words.starts_again_between(moment(now_s + low_s), moment(now_s + high_s))


def shown(forecast: Forecast, before: Iterable[WorkloadKey], changes: Iterable[Change]) -> Json:
    """A forecast with all its facts. ``before``: the first of the workloads that are tried before it."""
    return {
        **(brief(forecast) or {}),
        "starts": starts(brief(forecast)) if forecast.never is None else f"never, {forecast.never}",
        "ahead": forecast.ahead,
        "before": [{"workload": key} for key in before],
        "assumes": list(forecast.assumes),
        "changes": [
            {
                "kind": change.kind,
                "sentence": change.sentence,
                "workloads": [{"workload": key} for key in change.workloads],
                "at": change.at_s,
            }
            for change in changes
        ],
    }
