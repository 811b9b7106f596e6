"""Random shapes of Jobs: how many pods, what each asks for, for how long. Sources: Kubernetes' pages of Job, of
sidecar containers, of pod overhead and of resources of pods as a whole; Kueue's page of partial admission.
"""

import random
from typing import Final

from msgspec import Struct

from hack.outside.acts import CPU, GPU, OVERHEAD, RUNTIME_CLASS, Json

_LEAST: Final = "kueue.x-k8s.io/job-min-parallelism"
_RUNTIME: Final = "tessera.dev/runtime"
_ENDLESS_S: Final = 600


class Shape(Struct, frozen=True):
    """``notes``: annotations of the Job. ``pod``: the spec of its pods."""

    pods: int
    notes: Json
    pod: Json


def alike(runs_s: int, *, pods: int = 1, cpus: bool) -> Shape:
    """A GPU a pod. ``cpus``: quotas count CPUs."""
    return Shape(pods, _runs(runs_s), _pod([_container("main", 1, 1 if cpus else 0)]))


def drawn(rng: random.Random, *, cpus: bool) -> Shape:
    """Many of all are like each other, so that their order can be judged."""
    return alike(3, cpus=cpus) if rng.random() < 0.4 else odd(rng, cpus=cpus)  # noqa: PLR2004 - a share


def odd(rng: random.Random, *, cpus: bool) -> Shape:
    kinds = [_wide, _gang, _elastic, _sidecar, _helper, _several]
    if cpus:
        kinds += [_as_a_whole, _overhead]
    return rng.choice(kinds)(rng, cpus)


def job(shape: Shape, labels: Json) -> Json:
    """The body of a batch/v1 Job, suspended."""
    spec = {
        "suspend": True,
        "parallelism": shape.pods,
        "completions": shape.pods,
        "template": {"spec": shape.pod},
    }
    return {"metadata": {"labels": labels, "annotations": shape.notes}, "spec": spec, "status": {}}


# -- shapes ------------------------------------------------------------------------------------------------------------


def _wide(rng: random.Random, cpus: bool) -> Shape:
    return Shape(1, _lasting(rng), _pod([_main(rng, cpus, (1, 2, 2, 4))]))


def _gang(rng: random.Random, cpus: bool) -> Shape:
    return Shape(rng.randint(2, 4), _lasting(rng), _pod([_main(rng, cpus, (1, 1, 2))]))


def _elastic(rng: random.Random, cpus: bool) -> Shape:
    pods = rng.randint(2, 4)
    return Shape(pods, {**_lasting(rng), _LEAST: str(rng.randint(1, pods - 1))}, _pod([_main(rng, cpus, (1,))]))


def _sidecar(rng: random.Random, cpus: bool) -> Shape:
    beside = {**_container("beside", rng.randint(1, 2), _cpus(rng, cpus)), "restartPolicy": "Always"}
    first = [_container("first", rng.randint(1, 3), 0)] if rng.random() < 0.3 else []  # noqa: PLR2004 - a share
    pod = {**_pod([_main(rng, cpus, (1,))]), "initContainers": [beside, *first]}
    return Shape(rng.choice([1, 1, 2]), _lasting(rng), pod)


def _helper(rng: random.Random, cpus: bool) -> Shape:
    pod = {**_pod([_main(rng, cpus, (1, 2))]), "initContainers": [_container("helper", rng.randint(1, 3), 0)]}
    return Shape(1, _lasting(rng), pod)


def _several(rng: random.Random, cpus: bool) -> Shape:
    return Shape(1, _lasting(rng), _pod([_main(rng, cpus, (1,)), _container("other", 1, _cpus(rng, cpus))]))


def _as_a_whole(rng: random.Random, cpus: bool) -> Shape:
    """The pod's CPUs stand in place of its containers'."""
    pod = {**_pod([_container("main", 1, _cpus(rng, cpus))]), "resources": {"requests": {CPU: str(rng.randint(2, 4))}}}
    return Shape(rng.choice([1, 1, 2]), _lasting(rng), pod)


def _overhead(rng: random.Random, cpus: bool) -> Shape:
    """A job of pods with an overhead, which the API server copies from their RuntimeClass."""
    pod = {**_pod([_main(rng, cpus, (1,))]), "runtimeClassName": RUNTIME_CLASS, "overhead": OVERHEAD}
    return Shape(rng.choice([1, 2, 3]), _lasting(rng), pod)


# -- their parts -------------------------------------------------------------------------------------------------------


def _main(rng: random.Random, cpus: bool, gpus: tuple[int, ...]) -> Json:
    return _container("main", rng.choice(gpus), _cpus(rng, cpus))


def _cpus(rng: random.Random, cpus: bool) -> int:
    return rng.choice([1, 1, 2]) if cpus else 0


def _container(name: str, gpus: int, cpus: int) -> Json:
    asked = {GPU: str(gpus)} | ({CPU: str(cpus)} if cpus else {})
    return {"name": name, "image": "i", "resources": {"requests": asked, "limits": asked}}


def _pod(containers: list[Json]) -> Json:
    return {"restartPolicy": "Never", "containers": containers}


def _lasting(rng: random.Random) -> Json:
    return _runs(rng.choice([1, 2, 3, 5, 8, _ENDLESS_S]))


def _runs(seconds: int) -> Json:
    return {_RUNTIME: f"{seconds}s"}
