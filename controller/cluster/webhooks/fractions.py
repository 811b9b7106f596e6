"""The mutating webhook for parts of GPUs as other schedulers request them, for API servers without
MutatingAdmissionPolicy.

The webhook does what the chart's policies do: a pod, or the template of a Job, requests percents instead. Pure.
"""

from typing import Final

from controller.cluster.webhooks.review import answered
from controller.foreign.rules.fractions import Fleet, translation
from controller.jobs.framework.raw import JobError, mapping
from controller.objects.conversion.tree import ConversionError, Json, text

PATH: Final = "/mutate-fractions"
_OBJECT: Final = ".request.object"
_TEMPLATE: Final = ("spec", "template")


def answer(body: bytes, *, fleet: Fleet) -> bytes:
    """The review of the same uid: allowed, with the containers' requests in percents. A body that is no review is
    refused.
    """

    def made(given: Json, _namespace: str) -> list[Json]:
        return patch(given, fleet)

    return answered(body, made)


def patch(given: Json, fleet: Fleet) -> list[Json]:
    """The JSON patch (RFC 6902) for a pod or a Job; empty for any other object. Raises ConversionError."""
    kind = tuple(text(given, key, _OBJECT) for key in ("apiVersion", "kind"))
    try:
        if kind == ("v1", "Pod"):
            return translation(given, fleet)
        if kind == ("batch/v1", "Job"):
            return translation(mapping(given, *_TEMPLATE), fleet, "/spec/template")
    except JobError as error:
        raise ConversionError(f"{_OBJECT}: {error}") from None
    return []
