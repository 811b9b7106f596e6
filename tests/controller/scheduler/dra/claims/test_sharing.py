"""Claims in queues: each is charged once, to the first that names it, for as long as anybody does."""

import random
from typing import Any

import msgspec
import pytest

from controller.insight.explain import explained
from controller.objects.decode import KUEUE, decode_object
from controller.objects.deviceclaims import DeviceClass, ResourceClaim, ResourceClaimTemplate
from controller.objects.meta import to_json
from controller.objects.workload import ReclaimablePod, Workload
from controller.scheduler.decisions import reasons
from controller.scheduler.decisions.decisions import Admitted, Evicted
from controller.scheduler.dra.claims.book import first_naming
from controller.scheduler.model.resources import ClusterQueueName, FlavorName, FlavorResource, ResourceName, WorkloadKey
from tests.support.engine.deviceclaims import asks, claim, claiming, counting, device_class, template
from tests.support.engine.world import World, cluster_queue, flavor, local_queue, requesting, workload
from tests.support.seeds import histories

GPU = FlavorResource(FlavorName("default"), ResourceName("gpu"))


def queues(nominal: int = 4, **config: Any) -> World:
    lab = World(counting(**config))
    lab.put(flavor(), cluster_queue("q", nominal), local_queue("q"))
    return lab


def used(lab: World, queue: str = "q") -> int:
    lab.engine.settled(lab.now_s)
    lab.engine.validate()
    return lab.engine.state.cluster.queues[ClusterQueueName(queue)].node.used().get(GPU, 0)


def said(lab: World, name: str) -> str:
    told = lab.engine.explain(WorkloadKey(f"ns/{name}"), lab.now_s)
    assert told is not None
    return next(each.message for each in told.status().status.conditions if each.type == reasons.QUOTA_RESERVED)


def test_each_pod_is_charged_for_the_claims_of_its_templates() -> None:
    lab = queues(8)
    lab.put(template("two", asks(count=2)), template("one", asks()))
    lab.put(claiming("job", templates=["two", "one"], count=2), claiming("more", templates=["two"], count=2))
    lab.settle()
    assert lab.running() == {"job"}
    assert used(lab) == 6
    (held,) = lab.workloads[WorkloadKey("ns/job")].status.admission.pod_set_assignments  # type: ignore[union-attr]
    assert str(held.resource_usage["gpu"]) == "6"
    assert said(lab, "more") == "Needs 4 gpu of flavor default: 2 free, 2 more needed"


def test_a_template_may_come_later() -> None:
    lab = queues()
    lab.put(claiming("job", templates=["late"]))
    lab.settle()
    assert lab.running() == set()
    assert said(lab, "job") == (
        "Its claims of devices cannot be counted: pod set main: claim t0: there is no ResourceClaimTemplate ns/late. "
        "Correct what is named; it queues then"
    )
    lab.put(template("late", asks(), namespace="other"))
    lab.settle()
    assert lab.running() == set()
    lab.put(template("late", asks()))
    lab.settle()
    assert lab.running() == {"job"}
    lab.engine.drop(ResourceClaimTemplate, "ns", "late", lab.now_s)
    assert used(lab) == 1, "what holds quota keeps it"


def test_a_template_that_was_made_anew_counts_as_it_is_now() -> None:
    """Workloads of one shape are decided alike, and the same text has become another shape."""
    lab = queues(4)
    lab.put(template("t", asks(count=9)), claiming("waits", templates=["t"]))
    lab.settle()
    assert lab.running() == set()
    lab.engine.drop(ResourceClaimTemplate, "ns", "t", lab.now_s)
    lab.put(template("t", asks(count=3)), claiming("late", templates=["t"], created_s=1))
    lab.settle()
    assert (lab.running(), used(lab)) == ({"waits"}, 3)


def test_a_claim_is_charged_to_the_first_pod_set_that_has_pods() -> None:
    made = claiming("w", claims=["c"])
    key, name = "ns/c", made.spec.pod_sets[0].name
    assert first_naming(made, {name: 1}, of_groups=False) == {key: name}
    assert first_naming(made, {name: 0}, of_groups=False) == {}
    assert first_naming(made, {}, of_groups=False) == {}, "pods that are not counted have none"


def test_a_claim_that_two_share_is_charged_to_the_first_alone() -> None:
    lab = queues(4)
    lab.put(claim("shared", asks(count=3)))
    for name in ("a", "b"):
        lab.put(claiming(name, claims=["shared"], count=2))
    lab.settle()
    assert lab.running() == {"a", "b"}
    assert used(lab) == 3
    for name in ("a", "b"):
        admission = lab.workloads[WorkloadKey(f"ns/{name}")].status.admission
        assert admission is not None
        assert str(admission.pod_set_assignments[0].resource_usage["gpu"]) == "0", "what it takes of itself"
    lab.finish("a")
    assert used(lab) == 3, "the next one is charged"
    lab.rebuild()
    assert used(lab) == 3
    lab.finish("b")
    assert used(lab) == 0


def test_a_workload_is_charged_once_whatever_its_pod_sets_name() -> None:
    lab = queues(4)
    lab.put(claim("shared", asks(count=3)), claiming("a", claims=["shared", "shared"], count=3, least=1))
    lab.settle()
    assert used(lab) == 3


def two_sets(*sets: tuple[str, int, dict[str, str]]) -> Workload:
    """Pod sets by name, number of pods, and the claims that they have."""
    made = to_json(workload("w", "q"))
    container = {"name": "main", "resources": {}}
    made["spec"]["podSets"] = [
        {
            "name": name,
            "count": count,
            "template": {"spec": {"containers": [container], "resourceClaims": [{"name": "c", **named}]}},
        }
        for name, count, named in sets
    ]
    found = decode_object({"apiVersion": KUEUE, "kind": "Workload", **made})
    assert isinstance(found, Workload)
    return found


SHARED = {"resourceClaimName": "shared"}
TWO_FLAVORS = (("small", "1"), ("large", "4"))


def test_a_claim_is_charged_in_the_flavor_of_the_pod_set_that_has_it() -> None:
    lab = World(counting())
    quotas = [{"name": name, "resources": [{"name": "gpu", "nominalQuota": most}]} for name, most in TWO_FLAVORS]
    groups = [{"coveredResources": ["gpu"], "flavors": quotas}]
    lab.put(flavor("small"), flavor("large"), cluster_queue("q", resourceGroups=groups), local_queue("q"))
    lab.put(template("one", asks()), claim("shared", asks(count=4)))
    lab.put(two_sets(("a", 1, {"resourceClaimTemplateName": "one"}), ("b", 1, SHARED)))
    lab.settle()
    used(lab)
    assert lab.engine.state.cluster.queues[ClusterQueueName("q")].node.used() == {
        FlavorResource(FlavorName("small"), ResourceName("gpu")): 1,
        FlavorResource(FlavorName("large"), ResourceName("gpu")): 4,
    }


def test_a_pod_set_without_pods_has_no_claim() -> None:
    lab = queues(4)
    lab.put(claim("shared", asks(count=4)), two_sets(("a", 0, SHARED), ("b", 1, SHARED)))
    lab.settle()
    assert (lab.running(), used(lab)) == ({"w"}, 4)
    lab.finish("w")
    lab.put(two_sets(("a", 0, {"resourceClaimName": "lost"}), ("b", 1, SHARED)))
    lab.settle()
    assert (lab.running(), used(lab)) == ({"w"}, 4)


def test_a_claim_stays_charged_when_the_pods_that_had_it_have_ended() -> None:
    lab = queues(4)
    lab.put(claim("shared", asks(count=4)), two_sets(("a", 1, SHARED), ("b", 1, SHARED)))
    lab.settle()
    running = lab.workloads[WorkloadKey("ns/w")]
    ended = (ReclaimablePod(name="a", count=1),)
    lab.put(msgspec.structs.replace(running, status=msgspec.structs.replace(running.status, reclaimable_pods=ended)))
    assert used(lab) == 4


def test_a_shared_claim_does_not_shrink_with_the_pods() -> None:
    """Of a workload with its own GPUs and a claim: fewer pods take less of themselves, and the whole claim."""
    lab = queues(7)
    lab.put(claim("shared", asks(count=3)), template("one", asks()))
    lab.put(claiming("a", claims=["shared"], templates=["one"], count=6, least=1))
    lab.settle()
    assert lab.running() == {"a"}
    (held,) = lab.workloads[WorkloadKey("ns/a")].status.admission.pod_set_assignments  # type: ignore[union-attr]
    assert (held.count, str(held.resource_usage["gpu"])) == (4, "4")
    assert used(lab) == 7


def test_who_waits_beside_a_claim_that_runs_waits_for_the_rest_alone() -> None:
    lab = queues(4)
    lab.put(claim("shared", asks(count=3)), template("one", asks()))
    lab.put(claiming("a", claims=["shared"]), claiming("b", claims=["shared"], templates=["one"], created_s=1))
    lab.settle()
    assert lab.running() == {"a", "b"}
    assert used(lab) == 4
    lab.finish("a")
    lab.put(workload("c", "q", 1, created_s=2))
    lab.settle()
    assert lab.running() == {"b"}
    assert used(lab) == 4


def test_what_claims_count_as_is_told_of_each() -> None:
    lab = queues(4)
    lab.put(claim("shared", asks(count=3)), template("one", asks()))
    for name in ("a", "b"):
        lab.put(claiming(name, claims=["shared", "lost"], templates=["one"]))
    lab.put(claiming("c", claims=["shared"]))
    lab.settle()
    told = explained(lab.engine, lab.workloads[WorkloadKey("ns/a")], lab.now_s)["claims"]
    assert told == [
        {"claim": "ns/one", "template": True, "counts": {"gpu": "1"}, "problem": "", "chargedTo": [], "notPlaced": ""},
        {
            "claim": "ns/shared",
            "template": False,
            "counts": {"gpu": "3"},
            "problem": "",
            "chargedTo": ["ns/c"],
            "notPlaced": "",
        },
        {
            "claim": "ns/lost",
            "template": False,
            "counts": {},
            "problem": "there is no ResourceClaim ns/lost",
            "chargedTo": [],
            "notPlaced": "",
        },
    ]
    off = World(counting(on=False))
    off.put(claiming("a", claims=["shared"]))
    assert explained(off.engine, off.workloads[WorkloadKey("ns/a")], off.now_s)["claims"] == []


def test_the_claim_follows_into_the_queue_of_the_next() -> None:
    lab = queues(4)
    lab.put(cluster_queue("p", 4), local_queue("p"), claim("shared", asks(count=3)))
    lab.put(claiming("a", claims=["shared"]))
    lab.settle()
    lab.put(claiming("b", claims=["shared"], queue="p"))
    lab.settle()
    assert (used(lab), used(lab, "p")) == (3, 0)
    lab.finish("a")
    assert (used(lab), used(lab, "p")) == (0, 3)


def test_the_claim_of_a_group_is_charged_while_a_workload_names_it_and_not_for_its_group() -> None:
    lab = queues(4)
    owner = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "name": "g", "uid": "g", "controller": True}
    notes = {"resource.kubernetes.io/pod-claim-name": "shared"}
    lab.put(claim("g-shared", asks(count=3), given=["r0"] * 3, annotations=notes, ownerReferences=[owner]))
    for name in ("a", "b"):
        lab.put(claiming(name, claims=["g-shared"]))
    lab.settle()
    assert (lab.running(), used(lab)) == ({"a", "b"}, 3)
    lab.finish("a")
    assert used(lab) == 3, "once, for the one that is left"
    lab.finish("b")
    assert used(lab) == 0, "the claim has its devices still: quota is of workloads"
    lab.put(claiming("next", claims=["g-shared"]))
    lab.settle()
    assert used(lab) == 3


def test_a_queue_without_quota_on_it_is_not_charged() -> None:
    lab = queues(4)
    lab.put(flavor("cpu"))
    groups = [
        {"coveredResources": ["cpu"], "flavors": [{"name": "cpu", "resources": [{"name": "cpu", "nominalQuota": "1"}]}]}
    ]
    lab.put(cluster_queue("p", resourceGroups=groups), local_queue("p"), claim("shared", asks(count=3)))
    lab.put(claiming("b", claims=["shared"], queue="p"))
    lab.settle()
    assert lab.running() == set()
    lab.put(claiming("a", claims=["shared"], created_s=1))
    lab.settle()
    assert lab.running() == {"a", "b"}, "it asks for nothing that is not charged elsewhere"
    assert used(lab) == 3


def test_an_admission_that_was_refused_leaves_no_charge() -> None:
    lab = queues(4)
    lab.put(
        claim("shared", asks(count=3)), claiming("a", claims=["shared"]), claiming("b", claims=["shared"], created_s=1)
    )
    lab.cycle(refuse=[Admitted])
    assert (lab.running(), used(lab)) == (set(), 0)
    lab.settle()
    assert lab.running() == {"a", "b"}
    assert used(lab) == 3


def test_an_alternative_costs_the_most_until_it_is_given() -> None:
    lab = queues(8)
    alternatives = {"firstAvailable": [{"name": "big", **asks(count=6)}, {"name": "small", **asks(count=2)}]}
    lab.put(claim("shared", alternatives), claiming("a", claims=["shared"]))
    lab.put(workload("waits", "q", 4, created_s=1))
    lab.settle()
    assert (lab.running(), used(lab)) == ({"a"}, 6)
    lab.put(claim("shared", alternatives, given=["r0/small", "r0/small"]))
    lab.settle()
    assert (lab.running(), used(lab)) == ({"a", "waits"}, 6)


def test_a_claim_that_is_gone_is_charged_no_more() -> None:
    lab = queues(4)
    lab.put(claim("shared", asks(count=3)), claiming("a", claims=["shared"]))
    lab.settle()
    assert used(lab) == 3
    lab.engine.drop(ResourceClaim, "ns", "shared", lab.now_s)
    assert used(lab) == 3, "its pods run still"
    del lab.others[(ResourceClaim, "ns/shared")]
    lab.rebuild()
    assert used(lab) == 0, "no object says any more what it was"
    lab.finish("a")
    assert used(lab) == 0


def test_a_class_that_stands_behind_a_resource_counts_as_its_mapping() -> None:
    lab = queues(4)
    lab.put(device_class("gpu.example.com", extended="example.com/gpu"))
    asking = requesting(workload("a", "q", count=2), {"example.com/gpu": "2"})
    lab.put(asking)
    lab.settle()
    assert (lab.running(), used(lab)) == ({"a"}, 4)
    lab.finish("a")
    lab.engine.drop(DeviceClass, "", "gpu.example.com", lab.now_s)
    lab.put(asking)
    lab.settle()
    assert lab.running() == set()
    assert "example.com/gpu" in said(lab, "a")


@histories(*range(6))
def test_a_shared_claim_is_never_charged_twice_nor_dropped_while_anybody_has_it(seed: int) -> None:
    rng = random.Random(seed)
    lab = World(counting())
    lab.put(flavor())
    for name in ("q", "p"):
        lab.put(
            cluster_queue(
                name, 6, cohort="all", preemption={"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
            ),
            local_queue(name),
        )
    sizes = {f"c{number}": rng.randint(1, 4) for number in range(3)}
    for number, (name, size) in enumerate(sizes.items()):
        if number:
            lab.put(claim(name, asks(count=size)))
    lab.put(template("own", asks()))
    names: dict[str, tuple[list[str], int, int]] = {}
    for step in range(40):
        _step(rng, lab, names, step)
        lab.settle()
        _check(lab, names, sizes)
        if step == 20:
            lab.put(claim("c0", asks(count=sizes["c0"])))
            lab.rebuild()
            lab.settle()
            _check(lab, names, sizes)


def _step(rng: random.Random, lab: World, names: dict[str, tuple[list[str], int, int]], step: int) -> None:
    running = sorted(lab.running())
    what = rng.random()
    if what < 0.55:
        name, named = f"w{step}", rng.sample(["c0", "c1", "c2"], rng.randint(0, 2))
        own, count = rng.randint(0, 1), rng.randint(1, 2)
        names[name] = (named, own, count)
        lab.put(
            claiming(
                name,
                claims=named,
                templates=["own"] * own,
                count=count,
                queue=rng.choice("qp"),
                priority=rng.randint(0, 2),
                created_s=step,
            )
        )
    elif what < 0.8 and running:
        lab.finish(rng.choice(running))
    elif what < 0.9:
        lab.cycle(refuse=rng.choice([[Admitted], [Evicted]]))
    else:
        lab.now_s += 5
        lab.stop_evicted()


def _check(lab: World, names: dict[str, tuple[list[str], int, int]], sizes: dict[str, int]) -> None:
    """What is used is what runs takes of itself, and each claim that it names once."""
    running = lab.running()
    own = sum(names[name][1] * names[name][2] for name in running)
    shared = sum(sizes[each] for each in {each for name in running for each in names[name][0]})
    assert used(lab, "q") + used(lab, "p") == own + shared


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_claim_keeps_its_charge_while_the_first_is_evicted(name: str) -> None:
    lab = queues(4)
    lab.put(cluster_queue("q", 4, preemption={"withinClusterQueue": "LowerPriority"}), claim("shared", asks(count=3)))
    lab.put(claiming("a", claims=["shared"], priority=int(name == "b")))
    lab.settle()
    lab.put(claiming("b", claims=["shared"], priority=int(name == "a"), created_s=1))
    lab.settle()
    lab.put(workload("c", "q", 2, priority=1, created_s=2))
    lab.settle()
    assert used(lab) == 3, "quota is free when pods have ended"
