"""An example of a kind: a train of cars, each with a pod template. The least that a kind has to declare."""

from typing import Any

from controller.jobs.framework.kind import Outcome
from controller.jobs.framework.raw import Json, has_condition, integer, sequence, text
from controller.jobs.framework.templated import Slot, TemplatedKind, ended, selector
from tests.support.controller.jobmodel import UID


class ExampleTrain(TemplatedKind):
    framework = "example.dev/train"
    group = "example.dev"
    version = "v1"
    kind = "Train"
    plural = "trains"

    def slots(self, job: Json) -> tuple[Slot, ...]:
        return tuple(
            Slot(
                name=text(car, "name"),
                path=("spec", "cars", index, "template"),
                count=integer(car, "pods", default=1),
                index_label="example.dev/seat",
            )
            for index, car in enumerate(sequence(job, "spec", "cars"))
        )

    def pod_selector(self, job: Json) -> str:
        return selector("example.dev/train", job)

    def finished(self, job: Json) -> Outcome | None:
        return ended(job, "Arrived", "Derailed", what="Train")

    def pods_ready(self, job: Json) -> bool:
        return has_condition(job, "Running")

    def is_active(self, job: Json) -> bool:
        return integer(job, "status", "active", default=0) > 0


def template(**spec: Any) -> Json:
    return {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}], **spec}}


def train(*cars: Json, **spec: Any) -> Json:
    """Of two cars with 1 and 3 pods where none are given."""
    given = cars or (
        {"name": "engine", "pods": 1, "template": {**template(), "metadata": {"labels": {"team": "a"}}}},
        {"name": "wagon", "pods": 3, "template": template(tolerations=[{"key": "spot", "operator": "Exists"}])},
    )
    return {
        "apiVersion": "example.dev/v1",
        "kind": "Train",
        "metadata": {
            "name": "t",
            "namespace": "default",
            "uid": UID,
            "resourceVersion": "1",
            "generation": 1,
            "labels": {"kueue.x-k8s.io/queue-name": "q"},
        },
        "spec": {"suspend": True, "cars": list(given), **spec},
        "status": {},
    }
