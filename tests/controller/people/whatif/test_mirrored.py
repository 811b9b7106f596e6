"""What-if in queues of Volcano's and KAI's: manifests as they are written for them, and quotas of theirs."""

import io
import pickle
from typing import Any

import pytest
import yaml

from controller.foreign.jobs.kind import ForeignJobKind
from controller.insight.forecast.submitted import Others
from controller.jobs.framework.settings import JobSettings
from controller.jobs.kinds.table import JOB_KINDS
from controller.objects.core import Namespace
from controller.objects.decode import decode
from controller.objects.meta import KubernetesObject
from controller.people.page.live import Live, State
from controller.people.whatif.child_shell import Given, answers
from controller.people.whatif.manifest import MOST_ABOVE, Composer
from controller.people.whatif.parent_shell import _parts
from controller.people.whatif.question import Asked, Question
from controller.people.whatif.quotas import QuotaChange
from controller.scheduler.mirror.specs import ADOPTED, System
from controller.scheduler.model.config import EngineConfig
from inventory.api.names import ALL_NODES
from tests.support.engine.foreignqueues import GPU, fill, kai_queue, rest, volcano_queue, world
from tests.support.engine.world import World

SYSTEMS = {System.VOLCANO: ADOPTED, System.KAI: ADOPTED}
COMPOSER = Composer(
    kinds=(*JOB_KINDS, ForeignJobKind()), settings=JobSettings(), facts={}, others=Others(adopted=SYSTEMS)
)
SPACE = decode({"metadata": {"name": "ns"}}, Namespace)


def volcano() -> World:
    """Of eight GPUs a has six and all that it deserves; two of its jobs wait."""
    a, b = volcano_queue("a", deserved={GPU: 6}, capability={GPU: 6}), volcano_queue("b", deserved={GPU: 2})
    lab = world(a, b, SPACE)
    fill(lab, "a", 8)
    rest(lab)
    return lab


def kai() -> World:
    """Of eight GPUs a has all, six of them as its quota; b's job takes none of them back, for it has no quota."""
    lab = world(kai_queue("a", quota=6), kai_queue("b", quota=0), SPACE)
    fill(lab, "a", 8)
    rest(lab)
    fill(lab, "b", 1, 2)
    rest(lab)
    return lab


def asked(lab: World, manifest: str = "", *quotas: QuotaChange) -> Any:
    objects: list[KubernetesObject] = list(lab.others.values())
    question = Question(config=EngineConfig(), now_s=lab.now_s, quotas=quotas, systems=SYSTEMS)
    given = Given(question, Asked(manifest=manifest, namespace="ns"), COMPOSER if manifest else None)
    sent = (pickle.dumps(given), *_parts(objects, list(lab.workloads.values())))
    return [*answers(io.BytesIO(b"".join(sent)))][-1]


def quota(queue: str, nominal: str, resource: str = GPU) -> QuotaChange:
    return QuotaChange(queue=queue, flavor=ALL_NODES, resource=resource, nominal=nominal)


def template(gpus: int) -> dict[str, Any]:
    container = {"name": "main", "image": "none", "resources": {"limits": {GPU: str(gpus)}}}
    return {"spec": {"restartPolicy": "Never", "containers": [container]}}


def volcano_job(queue: str, pods: int, least: int) -> str:
    spec = {"queue": queue, "minAvailable": least, "tasks": [{"name": "w", "replicas": pods, "template": template(1)}]}
    made = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "new"}, "spec": spec}
    return yaml.safe_dump(made)


def labelled(kind: str, queue: str, gpus: int) -> str:
    """A Job or a pod of KAI's users."""
    metadata = {"name": "new", "labels": {"kai.scheduler/queue": queue}}
    if kind == "Pod":
        return yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, **template(gpus)})
    spec = {"template": template(gpus)}
    return yaml.safe_dump({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})


def outcome(found: Any) -> dict[str, str]:
    return {each["workload"].removeprefix("ns/"): each["state"] for each in found["arrived"]}


def test_a_volcano_job_starts_in_the_queue_of_its_spec_and_waits_where_that_has_no_more() -> None:
    lab = volcano()
    found = asked(lab, volcano_job("b", 2, 2))
    assert outcome(found) == {"new": "admitted"}
    assert found["present"] == {"admitted": 6, "pending": 2}
    assert found["simulated"] == {"admitted": 7, "pending": 2}
    (b,) = [each for each in found["queues"] if each["name"] == "b"]
    assert (b["present"]["admitted"], b["simulated"]["admitted"]) == (0, 1)
    waits = asked(lab, volcano_job("a", 1, 1))
    assert outcome(waits) == {"new": "pending"}
    assert waits["arrived"][0]["why"]
    assert len(lab.running()) == 6, "the live engine is as it was"


def test_pods_above_the_minimum_join_one_by_one_as_there_is_room() -> None:
    lab = volcano()
    found = outcome(asked(lab, volcano_job("b", 3, 1)))
    assert found == {"new": "admitted", "new-w-1": "admitted", "new-w-2": "pending"}
    many = asked(lab, volcano_job("b", MOST_ABOVE + 11, 1))
    assert len(many["arrived"]) == MOST_ABOVE + 1
    assert many["warnings"] == ["10 more pods above the job's minimum are not tried"]


@pytest.mark.parametrize("kind", ["Job", "Pod"])
def test_what_is_labelled_for_kais_queues_is_tried_there(kind: str) -> None:
    lab = world(kai_queue("a", quota=6), kai_queue("b", quota=2), SPACE)
    fill(lab, "a", 8)
    rest(lab)
    found = asked(lab, labelled(kind, "b", 2))
    assert outcome(found) == {"new": "admitted"}
    gone = [each for each in found["changes"] if each["after"] == "evicted"]
    assert len(gone) == 2, "what a has beyond its quota is reclaimed"
    assert {each["queue"] for each in gone} == {"a"}
    assert outcome(asked(lab, labelled(kind, "b", 9))) == {"new": "pending"}
    assert "found no label kueue.x-k8s.io/queue-name" in asked(lab, labelled(kind, "", 1))["wrong"]


def test_what_a_volcano_queue_deserves_changes_who_runs() -> None:
    lab = volcano()
    fill(lab, "b", 4)
    rest(lab)
    assert asked(lab)["changes"] == []
    fewer = asked(lab, "", quota("a", "4"))
    assert fewer["simulated"]["admitted"] == 8
    kept = {each["name"]: each["simulated"]["admitted"] for each in fewer["queues"]}
    assert (kept["a"], kept["b"]) == (6, 2), "b has all that it deserves: nothing is taken for it"
    both = asked(lab, "", quota("a", "4"), quota("b", "4"))
    kept = {each["name"]: each["simulated"]["admitted"] for each in both["queues"]}
    assert (kept["a"], kept["b"]) == (4, 4)
    assert sorted(each["after"] for each in both["changes"]) == ["admitted", "admitted", "evicted", "evicted"]


def test_another_quota_of_kais_queue_reclaims_what_is_its_then() -> None:
    lab = kai()
    same = asked(lab)
    assert same["present"] == same["simulated"]
    more = asked(lab, "", quota("b", "2"))
    assert {(each["queue"], each["after"]) for each in more["changes"]} == {("a", "evicted"), ("b", "admitted")}
    assert asked(lab, "", quota("a", "8", "memory"))["changes"] == [], "KAI counts it in megabytes"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (quota("w", "1"), "says neither deserved nor capability of nvidia.com/gpu: its share follows from weights"),
        (quota("k", "1", "fpga"), "KAI counts cpu, memory, nvidia.com/gpu of Queue k, found fpga"),
        (quota("default", "1"), "found queue 'default', expected a ClusterQueue that is there, or a Queue of"),
    ],
)
def test_a_quota_that_a_queue_does_not_have_is_a_sentence(change: QuotaChange, said: str) -> None:
    lab = world(volcano_queue("w"), kai_queue("k"))
    assert said in asked(lab, "", change)["wrong"]


def test_rows_say_which_quota_of_a_queue_may_be_another() -> None:
    lab = world(
        volcano_queue("d", deserved={GPU: 3}, capability={GPU: 6}),
        volcano_queue("c", capability={GPU: 5}),
        volcano_queue("w"),
        kai_queue("k", quota=4),
        kai_queue("u", quota=-1),
    )
    rest(lab)
    live = Live()
    for _ in live.round(State(lab.engine, dict, dict, lambda _: None, {}, lambda _: None), ["queues"]):
        pass
    made: list[Any] = [row.of for row in live.tables["queues"].rows.values()]
    found = {row["name"]: each["changeable"] for row in made for each in row["resources"] if each["resource"] == GPU}
    assert {name: found[name] for name in "dcwku"} == {"d": 3, "c": 5, "w": None, "k": 4, "u": None}
