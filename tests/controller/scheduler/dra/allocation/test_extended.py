"""Extended resources of DeviceClasses in placement: by claim on nodes that offer none, beside other claims."""

import random
from collections.abc import Mapping

from controller.objects.decode import KUEUE, decode_object
from controller.objects.deviceclaims import DeviceClass
from controller.objects.meta import KubernetesObject, to_json
from controller.objects.placeencoding import Domain
from controller.scheduler.model.deviceclaims import ClaimRules
from controller.scheduler.model.resources import FlavorName, WorkloadKey
from controller.scheduler.model.workload import TopologyUsage
from tests.support.engine.boards import hosts, settled
from tests.support.engine.claimsupply import TYPE, asking, cluster, gang, gpus, made_by_scheduler, pod_of, supply_of
from tests.support.engine.deviceclaims import GPU_CLASS, asks, claim, device_class, node_slice, template
from tests.support.engine.topologylab import GPU, HOST, node
from tests.support.engine.world import World
from tests.support.seeds import histories

ONE = template("one", asks())
SERVING = device_class(GPU_CLASS, TYPE, extended=GPU)
IMPLICIT = f"deviceclass.resource.kubernetes.io/{GPU_CLASS}"


def world_of(numbers: Mapping[str, int], *objects: KubernetesObject) -> World:
    """``numbers``: the GPUs that each node gives by claim; its device plugin has none."""
    return cluster({f"b/r/{name}": gpus(name, number) for name, number in numbers.items()}, ONE, SERVING, *objects)


def put(world: World, *objects: KubernetesObject) -> None:
    world.put(*objects)
    settled(world)


def test_a_node_without_a_plugin_serves_by_claim_and_is_charged_for_it() -> None:
    world = world_of({"a": 1, "b": 4})
    put(world, asking("w", 2, 2), asking("x", 1, 1), asking("y", 1, 1))
    assert (hosts(world, "w"), hosts(world, "x"), hosts(world, "y")) == ({"b": 2}, {"a": 1}, {})
    world.finish("w")
    settled(world)
    assert hosts(world, "y") == {"b": 1}


def test_a_class_that_no_mapping_names_serves_its_resource_under_tesseras_policy_alone() -> None:
    nodes = {"b/r/a": gpus("a", 2)}
    for policy, placed in ((ClaimRules(every_kind=True), {"a": 1}), (ClaimRules(), {})):
        world = cluster(nodes, SERVING, counted=policy)
        put(world, asking("w", 1, 2))
        assert hosts(world, "w") == placed


def test_a_gang_fits_as_a_whole_or_waits_and_is_told_of_the_class() -> None:
    world = world_of({"a": 3, "b": 1})
    put(world, asking("w", 2, 2))
    assert hosts(world, "w") == {}
    decisions = world.workloads[WorkloadKey("ns/w")].status.conditions
    told = " ".join(condition.message for condition in decisions)
    assert f"1 with at most 1 of the 2 of class {GPU_CLASS} that a pod needs" in told
    put(world, node_slice("b", *gpus("b", 2)))
    assert hosts(world, "w") == {"a": 1, "b": 1}


def test_what_a_pods_claims_take_is_not_there_for_its_extended_resource() -> None:
    world = world_of({"a": 3})
    put(world, asking("w", 1, 2, templates=["one"]), gang("x", 1, templates=["one"]), asking("y", 1, 1))
    assert (hosts(world, "w"), hosts(world, "x"), hosts(world, "y")) == ({"a": 1}, {}, {})


def test_a_node_whose_plugin_offers_some_serves_by_the_plugin_alone() -> None:
    world = world_of({"a": 4})
    world.put(node("b/r/a", 1))
    put(world, asking("w", 1, 2), asking("v", 1, 1), gang("u", 4, templates=["one"]))
    assert (hosts(world, "w"), hosts(world, "v"), hosts(world, "u")) == ({}, {"a": 1}, {"a": 4})


def test_a_plugin_that_comes_or_goes_changes_who_serves() -> None:
    world = world_of({"a": 2})
    world.put(node("b/r/a", 1))
    put(world, asking("w", 2, 1))
    assert hosts(world, "w") == {}
    put(world, node("b/r/a", 0))
    assert hosts(world, "w") == {"a": 2}
    put(world, node("b/r/a", 4), gang("v", 2, templates=["one"]))
    assert hosts(world, "v") == {"a": 2}


def test_a_class_that_comes_or_goes_changes_who_serves() -> None:
    world = world_of({"a": 2}, device_class(GPU_CLASS, TYPE))
    put(world, asking("w", 1, 1))
    assert hosts(world, "w") == {}
    put(world, SERVING, asking("v", 1, 1), gang("u", 1, templates=["one"]))
    assert [len(hosts(world, name)) for name in "wvu"].count(1) == 2
    world.engine.drop(DeviceClass, "", GPU_CLASS, world.now_s)
    settled(world)
    put(world, asking("late", 1, 1))
    assert hosts(world, "late") == {}


def test_other_selectors_of_a_class_change_what_it_serves() -> None:
    world = world_of({"a": 2}, device_class(GPU_CLASS, "false", extended=GPU))
    put(world, asking("w", 1, 1))
    assert hosts(world, "w") == {}
    put(world, SERVING)
    assert hosts(world, "w") == {"a": 1}
    put(world, device_class(GPU_CLASS, "false", extended=GPU), asking("x", 1, 1))
    assert hosts(world, "x") == {}


def test_more_devices_than_a_claim_may_have_are_nowhere() -> None:
    world = world_of({"a": 40})
    put(world, asking("w", 1, 33), asking("x", 1, 32))
    assert (hosts(world, "w"), hosts(world, "x")) == ({}, {"a": 1})


def test_of_two_classes_the_newest_serves_and_each_by_its_own_name() -> None:
    never = device_class("none.example.com", "false", extended=GPU, created="2025-01-02T00:00:00Z")
    world = world_of({"a": 2}, never)
    put(world, asking("w", 1, 1), asking("v", 1, 1, resource=IMPLICIT))
    assert (hosts(world, "w"), hosts(world, "v")) == ({}, {"a": 1})


def test_a_class_whose_selectors_are_not_known_here_serves_nothing() -> None:
    world = world_of({"a": 2}, device_class(GPU_CLASS, "device.driver.matches('gpu.*')", extended=GPU))
    put(world, asking("w", 1, 1))
    assert hosts(world, "w") == {}


def test_devices_that_the_scheduler_gave_a_pod_count_once() -> None:
    world = world_of({"a": 4})
    put(world, asking("w", 2, 1, templates=["one"]))
    for pod, devices in (("p", ["gpu-0"]), ("q", ["gpu-2"])):
        world.put(pod_of(pod, "w", "a"))
        world.put(claim(f"{pod}-ext", asks(), given=["r0"], at="a", devices=devices, **made_by_scheduler(pod)))
    settled(world)
    # Each has one of its two claims: the other one is planned still.
    put(world, asking("late", 1, 1))
    assert hosts(world, "late") == {}
    world.finish("w")
    settled(world)
    assert hosts(world, "late") == {"a": 1}


def test_what_another_pod_has_by_claim_is_not_free() -> None:
    world = world_of({"a": 2})
    world.put(claim("x", asks(), given=["r0"], at="a", devices=["gpu-1"], **made_by_scheduler("other")))
    put(world, asking("w", 2, 1))
    assert hosts(world, "w") == {}


def test_the_plan_that_a_webhook_puts_into_claims_is_of_templates_alone() -> None:
    world = world_of({"a": 3})
    put(world, asking("w", 1, 2, templates=["one"]))
    plan = world.engine.state.cluster.placement.claim_plan(WorkloadKey("ns/w"), "main")
    assert list(plan) == ["t0"]


def test_what_nodes_can_give_is_told_of_resources_by_claim() -> None:
    world = world_of({"a": 3})
    put(world, asking("w", 1, 2))
    assert supply_of(world).free("a")[GPU] == 1
    ((_, free),) = world.engine.state.cluster.placement.free_by_node(FlavorName("default"))
    assert free[GPU] == 1


def test_a_leader_and_its_worker_find_theirs_together() -> None:
    world = world_of({"a": 2, "b": 3})
    made = to_json(asking("w", 2, 1))
    (workers,) = made["spec"]["podSets"]
    request = {"podSetGroupName": "g", "required": HOST}
    sets = [
        {**workers, "name": name, "count": count, "topologyRequest": request} for name, count in (("l", 1), ("w", 2))
    ]
    found = decode_object({"apiVersion": KUEUE, "kind": "Workload", **made, "spec": {**made["spec"], "podSets": sets}})
    put(world, found)
    assert hosts(world, "w") == {"b": 1}
    assert supply_of(world).free("b")[GPU] == 0


def test_places_that_are_held_for_a_while_fit_where_devices_are() -> None:
    world = world_of({"a": 2, "b": 2})
    put(world, asking("w", 1, 1))
    placement, (taken, free) = (
        world.engine.state.cluster.placement,
        sorted("ab", key=lambda name: name not in hosts(world, "w")),
    )

    def fits(host: str, pods: int) -> bool:
        usage = TopologyUsage(levels=(HOST,), domains=(Domain((host,), pods),), single_pod={GPU: 1})
        return placement.fits([(FlavorName("default"), usage)])

    assert [fits(taken, 1), fits(taken, 2), fits(free, 2), fits(free, 3)] == [True, False, True, False]
    world.engine.validate()


# -- against the plain rule --------------------------------------------------------------------------------------------


class Plain:
    """Alike GPUs and plugins that come and go on empty nodes: a pod fits where as many are free as it needs."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.by_claim = {"a": 3, "b": 4, "c": 2}
        self.by_plugin = dict.fromkeys(self.by_claim, 0)
        self.asked: dict[str, tuple[int, int, int]] = {}
        """By workload the pods, the GPUs of each by the old name, and by template."""
        self.world = world_of(self.by_claim)

    def step(self) -> None:
        self.random.choice((self.submit, self.submit, self.submit, self.finish, self.change))()
        settled(self.world)
        self.check()

    def submit(self) -> None:
        count, number, made = self.random.randrange(1, 4), self.random.randrange(3), self.random.randrange(2)
        name = f"w{len(self.asked)}"
        self.asked[name] = count, number, made
        self.world.put(asking(name, count, number, templates=["one"] * made))

    def finish(self) -> None:
        if self.world.workloads:
            self.world.finish(self.random.choice(sorted(self.world.workloads)).partition("/")[2])

    def change(self) -> None:
        name = self.random.choice(sorted(self.by_claim))
        if not any(name in places for places in self.places().values()):
            self.by_plugin[name] = self.random.choice((0, 0, 1, 3))
            self.by_claim[name] = self.random.randrange(5)
            self.world.put(node(f"b/r/{name}", self.by_plugin[name]))
            self.world.put(node_slice(name, *gpus(name, self.by_claim[name])))

    def places(self) -> dict[str, dict[str, int]]:
        return {key.partition("/")[2]: hosts(self.world, key.partition("/")[2]) for key in self.world.workloads}

    def check(self) -> None:
        """No more is given than there is, and whoever waits finds no room."""
        places = self.places()
        devices, plugin = dict(self.by_claim), dict(self.by_plugin)
        for name, places_ in places.items():
            _, number, made = self.asked[name]
            for host, pods in places_.items():
                served = self.by_plugin[host] > 0
                devices[host] -= pods * (made if served else made + number)
                plugin[host] -= pods * number if served else 0
        assert min(*devices.values(), *plugin.values()) >= 0
        for name, places_ in places.items():
            count, number, made = self.asked[name]
            if places_:
                continue
            fitting = 0
            for host, free in devices.items():
                served = self.by_plugin[host] > 0
                needed = made if served else made + number
                fits = [free // needed] if needed else [count]
                fits += [plugin[host] // number] if served and number else []
                fitting += min(fits)
            assert fitting < count, (name, self.asked[name], devices, plugin)


@histories(*range(8))
def test_pods_get_what_the_plain_rule_gives_and_no_more(seed: int) -> None:
    plain = Plain(seed)
    for _ in range(20):
        plain.step()
    plain.world.rebuild()
