"""Every declared kind at once: what runs is what was charged, and a stop leaves nothing behind."""

from collections import Counter

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.jobs.framework import names
from controller.jobs.framework.raw import Json
from controller.jobs.framework.templated import TemplatedKind
from controller.jobs.kinds.table import DECLARED_KINDS
from kube.testing.store import copied
from tests.support.controller.declaredjobs import MODELS as JOB_MODELS
from tests.support.controller.declaredjobs import Model, Sample
from tests.support.controller.declaredray import RAY_MODELS
from tests.support.controller.jobmodel import FLAVORS, cluster_objects
from tests.support.controller.kindrules import broken
from tests.support.controller.kindworld import KindWorld

MODELS = {**JOB_MODELS, **RAY_MODELS}
KINDS = pytest.mark.parametrize("kind", DECLARED_KINDS, ids=lambda kind: kind.framework)
CUTS = st.integers(0, 2)
HERE = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def test_every_declared_kind_has_a_model_here() -> None:
    assert {kind.framework for kind in DECLARED_KINDS} == MODELS.keys()


def started(kind: TemplatedKind, model: Model, sample: Sample, flavor: str = "h100") -> KindWorld:
    world = KindWorld(kind, sample.job, model.run)
    world.cluster = cluster_objects(look=sample.look)
    world.settle()
    world.admit(world.only, flavor=flavor)
    world.settle()
    return world


def shape(spec: Json) -> bytes:
    """What a pod is charged with."""
    return msgspec.json.encode([spec["containers"], spec.get("initContainers")], order="sorted")


@KINDS
@HERE
@given(data=st.data())
def test_the_pods_that_run_are_those_that_were_charged(kind: TemplatedKind, data: st.DataObject) -> None:
    model = MODELS[kind.framework]
    sample = data.draw(model.samples)
    assert model.pods(sample.job, sample.look) == []
    world = started(kind, model, sample)
    assert world.job is not None
    pods = model.pods(world.job, sample.look)
    charged: Counter[tuple[str, bytes]] = Counter()
    for pod_set in world.workloads[world.only]["spec"]["podSets"]:
        charged[pod_set["name"], shape(pod_set["template"]["spec"])] += pod_set["count"]
    ran = Counter((metadata["labels"][names.POD_SET], shape(spec)) for metadata, spec in pods)
    assert ran == +charged
    wanted = FLAVORS["h100"].spec.node_labels.items()
    assert all(wanted <= spec["nodeSelector"].items() for _, spec in pods)


@KINDS
@HERE
@given(data=st.data())
def test_a_stop_after_a_start_gives_the_templates_back_to_the_letter(kind: TemplatedKind, data: st.DataObject) -> None:
    model = MODELS[kind.framework]
    sample = data.draw(model.samples)
    before = copied(sample.job["spec"])
    world = started(kind, model, sample, flavor="a100")
    assert not world.suspended()
    world.evict(world.only)
    world.settle()
    assert world.job is not None
    assert model.kept(world.job["spec"]) == model.kept(before)
    assert "admission" not in world.workloads[world.only]["status"]
    assert model.pods(world.job, sample.look) == []
    world.admit(world.only, flavor="h100")
    world.settle()
    assert not world.suspended()


@KINDS
@HERE
@given(data=st.data())
def test_a_crash_after_any_action_loses_nothing(kind: TemplatedKind, data: st.DataObject) -> None:
    model = MODELS[kind.framework]
    sample = data.draw(model.samples)
    before = copied(sample.job["spec"])
    world = KindWorld(kind, sample.job, model.run)
    world.cluster = cluster_objects(look=sample.look)
    world.settle()
    name = world.only
    world.admit(name)
    for _ in range(3):
        world.step(crash_after=data.draw(CUTS))
        world.job_controller()
    world.evict(name)
    for _ in range(3):
        world.step(crash_after=data.draw(CUTS))
        world.job_controller()
    world.settle()
    assert world.job is not None
    assert model.kept(world.job["spec"]) == model.kept(before)


@KINDS
@HERE
@given(data=st.data())
def test_no_admitted_object_is_refused_by_the_kinds_own_rules(kind: TemplatedKind, data: st.DataObject) -> None:
    sample = data.draw(MODELS[kind.framework].samples)
    assert broken(kind, sample.job) == ()
    assert broken(kind, sample.job, before=sample.job) == ()
    assert kind.defaulted(kind.defaulted(sample.job)) == kind.defaulted(sample.job)
