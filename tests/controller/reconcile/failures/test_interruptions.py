"""Nodes that are taken away with notice: the whole gang leaves before."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from controller.cluster.watching.kinds import FLAVORS, NODES, PODS
from controller.objects.core import Node
from controller.objects.decode import decode
from controller.reconcile.failures.interruptioncounts import read_record
from controller.reconcile.failures.interruptions import Interruptions, notice_of
from controller.scheduler.topology.nodes import LEAVING
from inventory.api.names import INTERRUPTED_OFTEN, INTERRUPTION_RATE, INTERRUPTIONS
from kube.resources import EVENTS
from kube.testing import eventually
from tests.controller.reconcile.repairs.test_repairs_shell import figure
from tests.support.controller.stage import CONFIG, Stage, config, stage

TESSERA = CONFIG.replace("policy: kueue", "policy: tessera")


def node(*taints: str, deleted: bool = False) -> Node:
    meta = {"name": "n", **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {})}
    listed = [{"key": key, "effect": "NoSchedule"} for key in taints]
    return decode({"metadata": meta, "spec": {"taints": listed}}, Node)


@pytest.mark.parametrize("taint", sorted(LEAVING))
def test_each_taint_of_an_autoscaler_or_a_cloud_is_a_notice(taint: str) -> None:
    assert notice_of(node("other", taint), LEAVING) == taint


def test_so_is_the_deletion_of_the_node_and_nothing_else() -> None:
    assert notice_of(node(deleted=True), LEAVING) == "being deleted"
    assert notice_of(node("DeletionCandidateOfClusterAutoscaler"), LEAVING) == ""
    assert notice_of(node("site/leaves"), LEAVING) == ""
    assert notice_of(node("site/leaves"), LEAVING | {"site/leaves"}) == "site/leaves"


def maintained(reason: str = "KernelUpdate", status: str = "True", **annotations: str) -> Node:
    condition = {"type": "MaintenancePlanned", "status": status, "reason": reason}
    named = {key.replace("_", "-"): value for key, value in annotations.items()}
    meta = {"name": "n", "annotations": {f"tessera.dev/{key}": value for key, value in named.items()}}
    return decode({"metadata": meta, "status": {"conditions": [condition]}}, Node)


def test_a_planned_maintenance_is_a_notice_unless_it_has_a_time_or_is_a_repair_of_ours() -> None:
    assert notice_of(maintained(), LEAVING) == "MaintenancePlanned"
    assert notice_of(maintained(drain_at="soon"), LEAVING) == "MaintenancePlanned", "that is no time"
    assert notice_of(maintained(drain_at="2026-01-09T18:00:00Z"), LEAVING) == "", "whoever drains it does so then"
    assert notice_of(maintained("GpuRepair"), LEAVING) == "", "its pods may finish"
    assert notice_of(maintained(status="False"), LEAVING) == ""


def test_a_node_is_told_of_once_for_each_sign() -> None:
    known = Interruptions(LEAVING)
    assert not known.set_node("n", node())
    assert known.set_node("n", node("karpenter.sh/disrupted"))
    assert not known.set_node("n", node("karpenter.sh/disrupted"))
    assert known.set_node("n", node(deleted=True))
    assert known.leaving == {"n"}
    assert not known.set_node("n", node())
    assert known.sign("n") == ""
    assert known.set_node("n", node("karpenter.sh/disrupted")), "it leaves again"
    assert not known.set_node("n", None)


@asynccontextmanager
async def scene(policy: str = TESSERA) -> AsyncIterator[Stage]:
    """Workload w is admitted and has pods on n1 and n2, workload x one on n3."""
    async with stage() as here:
        here.queue(cpus=10)
        for name in ("n1", "n2", "n3"):
            here.server.create(NODES, name, {"metadata": {}, "spec": {}, "status": {}})
        async with here.controller(config(policy), core_only=False):
            for name, on in (("w", ("n1", "n2")), ("x", ("n3",))):
                here.workload(name)
                await here.until_admitted(name)
                for host in on:
                    pod(here, name, host)
            yield here


def pod(here: Stage, workload: str, host: str, **status: Any) -> None:
    meta = {"annotations": {"kueue.x-k8s.io/workload": workload}, "labels": {"kueue.x-k8s.io/podset": "main"}}
    body = {"metadata": meta, "spec": {"nodeName": host, "containers": []}, "status": {"phase": "Running", **status}}
    here.server.create(PODS, f"{workload}-{host}", body, namespace="team")


def taint(here: Stage, name: str, key: str) -> None:
    here.server.merge(NODES, name, {"spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}})


async def test_the_whole_gang_is_evicted_and_others_run_on() -> None:
    async with scene() as here:
        taint(here, "n2", "aws-node-termination-handler/spot-itn")
        await eventually(lambda: here.condition("w", "Evicted") == "True/NodeInterrupted")
        (said,) = [one["message"] for one in here.conditions("w") if one["type"] == "Evicted"]
        assert said == ("Node n2 is taken away (aws-node-termination-handler/spot-itn): its whole gang leaves before")
        await eventually(
            lambda: any(one["reason"] == "EvictedDueToNodeInterrupted" for one in here.server.list_all(EVENTS))
        )
        assert not here.condition("x", "Evicted").startswith("True")


async def test_a_planned_maintenance_evicts_the_whole_gang_as_a_taint_does() -> None:
    async with scene() as here:
        condition = {"type": "MaintenancePlanned", "status": "True", "reason": "KernelUpdate"}
        here.server.merge(NODES, "n2", {"status": {"conditions": [condition]}})
        await eventually(lambda: here.condition("w", "Evicted") == "True/NodeInterrupted")
        (said,) = [one["message"] for one in here.conditions("w") if one["type"] == "Evicted"]
        assert said == "Node n2 is taken away (MaintenancePlanned): its whole gang leaves before"
        assert not here.condition("x", "Evicted").startswith("True")


async def test_pods_that_have_ended_take_nobody_along() -> None:
    async with scene() as here:
        here.server.create(NODES, "n4", {"metadata": {}, "spec": {}, "status": {}})
        pod(here, "x", "n4", phase="Succeeded")
        taint(here, "n4", "karpenter.sh/disrupted")
        taint(here, "n1", "karpenter.sh/disrupted")
        await eventually(lambda: here.condition("w", "Evicted") == "True/NodeInterrupted")
        assert not here.condition("x", "Evicted").startswith("True")


async def test_a_taint_of_the_configuration_counts_too() -> None:
    async with scene(TESSERA + "  leavingTaints: [site.example/leaves]\n") as here:
        taint(here, "n1", "site.example/leaves")
        await eventually(lambda: here.condition("w", "Evicted") == "True/NodeInterrupted")


# -- how often that is of a flavor -------------------------------------------------------------------------------------


MADE = {"creationTimestamp": "2026-01-05T18:00:00Z"}


def said(here: Stage) -> dict[str, str]:
    """The annotations of the flavor that selects all nodes."""
    found: dict[str, str] = here.server.get(FLAVORS, "default")["metadata"].get("annotations", {})
    return found


async def test_a_flavor_says_how_often_its_nodes_are_taken_away_and_an_idle_node_is_none() -> None:
    async with scene() as here:
        here.server.create(NODES, "idle", {"metadata": {}, "spec": {}, "status": {}})
        taint(here, "idle", "karpenter.sh/disrupted")
        taint(here, "n2", "karpenter.sh/disrupted")
        await eventually(lambda: said(here).get(INTERRUPTION_RATE) == "1.00")
        assert INTERRUPTED_OFTEN not in said(here)
        here.server.merge(NODES, "n2", {"metadata": {"finalizers": ["karpenter.sh/termination"]}})
        here.server.delete(NODES, "n2")
        taint(here, "n3", "karpenter.sh/disrupted")
        await eventually(lambda: said(here).get(INTERRUPTED_OFTEN) == "2.00")
        await eventually(lambda: figure(here, "tessera_flavor_interruptions_per_node_day") == [2.0])
        assert figure(here, "tessera_flavor_interruptions_total") == [2.0]
        assert sum(n for n, _ in read_record(said(here)[INTERRUPTIONS]).steps.values()) == 2


async def test_the_next_leader_counts_no_departure_again() -> None:
    async with stage() as here:
        here.queue(cpus=10)
        for name in ("n1", "n2"):
            here.server.create(NODES, name, {"metadata": MADE, "spec": {}, "status": {}})
            here.workload(f"on-{name}")
        async with here.controller(config(TESSERA), core_only=False):
            await here.until_admitted("on-n1", "on-n2")
            for name in ("n1", "n2"):
                pod(here, f"on-{name}", name)
            taint(here, "n1", "karpenter.sh/disrupted")
            await eventually(lambda: INTERRUPTION_RATE in said(here))
        async with here.controller(config(TESSERA), core_only=False):
            taint(here, "n2", "karpenter.sh/disrupted")
            await eventually(lambda: here.condition("on-n2", "Evicted") == "True/NodeInterrupted")
            await eventually(lambda: "n2" in read_record(said(here)[INTERRUPTIONS]).counted)
            assert sum(n for n, _ in read_record(said(here)[INTERRUPTIONS]).steps.values()) == 2
            assert sorted(read_record(said(here)[INTERRUPTIONS]).counted) == ["n1", "n2"]


async def test_under_kueues_policy_flavors_say_nothing() -> None:
    async with scene(CONFIG) as here:
        taint(here, "n2", "karpenter.sh/disrupted")
        here.workload("later")
        await here.until_admitted("later")
        assert said(here) == {}
