"""Gangs that start with a PodGroup of Kubernetes' own, while their controller is killed."""

import time
from typing import Any, Final

from cli.playground.cluster import GPU, stamp
from controller.cluster.watching.kinds import JOBS, PODS, WORKLOADS
from controller.reconcile.lifecycle.schedulerverdict import INITIALLY_SCHEDULED
from failpoints.names import Failpoint
from inventory.api.names import GANG_SCHEDULED, START_OF
from tests.support.controller.podworld import pod as marked
from tests.support.failpoints.acts import ends, job, over, running, runs, says, workload
from tests.support.failpoints.cluster import CONFIG, QUEUE, START_GROUPS, TEAM, Act, Json, KilledCluster, Stage
from tests.support.failpoints.furtheracts import ended, phase

NATIVE: Final = CONFIG + "  nativeGangs: auto\n"


def groups(here: KilledCluster, owner: str) -> list[Json]:
    """Those of the job's Workload that are not being deleted."""
    uid = workload(here, owner).get("metadata", {}).get("uid")
    return [
        each
        for each in here.server.list_all(START_GROUPS)
        if each["metadata"]["labels"].get(START_OF) == uid and "deletionTimestamp" not in each["metadata"]
    ]


def minimum(here: KilledCluster, owner: str) -> int:
    return sum(each["spec"]["schedulingPolicy"]["gang"]["minCount"] for each in groups(here, owner))


def verdict(here: KilledCluster, owner: str, status: str, reason: str) -> None:
    """kube-scheduler's word on the job's group."""
    said: dict[str, Any] = {
        "type": INITIALLY_SCHEDULED,
        "status": status,
        "reason": reason,
        "message": "no room",
    }
    (group,) = groups(here, owner)
    patch = {"status": {"conditions": [{**said, "lastTransitionTime": stamp(0)}]}}
    here.server.merge(START_GROUPS, group["metadata"]["name"], patch, namespace=TEAM)


def a_gang_runs(here: KilledCluster, n: str) -> list[Stage]:
    """Beside another, which a half-gated one must not hold up."""
    first, second = f"a-{n}", f"b-{n}"

    def begun() -> None:
        job(here, first, 2)
        job(here, second, 2)

    return [
        Stage(begun, lambda: over(here, first) and over(here, second), "both gangs have run"),
        ends(here, first, second),
        Stage(lambda: None, lambda: not here.server.list_all(START_GROUPS), "their groups are gone with them"),
    ]


def a_gang_starts_twice(here: KilledCluster, n: str) -> list[Stage]:
    first: list[str] = []

    def active(now: bool) -> None:
        name = workload(here, n)["metadata"]["name"]
        here.server.merge(WORKLOADS, name, {"spec": {"active": now}}, namespace=TEAM)

    def stopped() -> bool:
        return not groups(here, n) and says(here, n, "QuotaReserved").startswith("False")

    def stops() -> None:
        first.extend(each["metadata"]["name"] for each in groups(here, n))
        active(now=False)

    def anew() -> bool:
        return runs(here, n, 2) and [each["metadata"]["name"] for each in groups(here, n)] not in ([], first)

    return [
        Stage(lambda: job(here, n, 2, runs_s=None), lambda: runs(here, n, 2), "the gang runs"),
        Stage(stops, stopped, "it is stopped, and its group is gone"),
        Stage(lambda: active(now=True), anew, "it runs again, with another group"),
        ends(here, n),
    ]


def a_gang_loses_a_pod(here: KilledCluster, n: str) -> list[Stage]:
    """After another has ended: the one that is made in its place is all that is left of the gang."""

    def lost() -> None:
        verdict(here, n, "True", "Scheduled")
        here.schedules = False
        here.server.merge(JOBS, n, {"status": {"succeeded": 1}}, namespace=TEAM)
        here.server.delete(PODS, running(here, n)[0]["metadata"]["name"], namespace=TEAM)

    def back() -> None:
        here.schedules = True
        here.lose("")  # none is lost: what is there is looked at again

    return [
        Stage(lambda: job(here, n, 2, runs_s=None), lambda: runs(here, n, 2), "the gang runs"),
        Stage(lost, lambda: minimum(here, n) == 1, "one pod may start by itself"),
        Stage(back, lambda: runs(here, n, 2), "the gang runs again"),
        ends(here, n),
    ]


def a_gang_has_no_room(here: KilledCluster, n: str) -> list[Stage]:
    def begun() -> None:
        here.schedules = False
        job(here, n, 2, runs_s=None)

    def started() -> bool:
        return bool(groups(here, n)) and not here.server.get(JOBS, n, namespace=TEAM)["spec"]["suspend"]

    def roomy() -> None:
        here.schedules = True
        verdict(here, n, "True", "Scheduled")

    return [
        Stage(begun, started, "the gang is started"),
        Stage(
            lambda: verdict(here, n, "False", "Unschedulable"),
            lambda: says(here, n, GANG_SCHEDULED) == "False/Unschedulable",
            "it is told that there is no room",
        ),
        Stage(
            roomy,
            lambda: runs(here, n, 2) and says(here, n, GANG_SCHEDULED) == "True/Scheduled",
            "the gang runs and it is told",
        ),
        ends(here, n),
    ]


def a_group_of_a_users_starts(here: KilledCluster, n: str) -> list[Stage]:
    """One of its gates is lifted when the leader dies: the next one lifts the others, and none starts before."""
    group, names = f"g-{n}", [f"{each}-{n}" for each in "pqr"]

    def begun() -> None:
        gang = {"schedulingPolicy": {"gang": {"minCount": len(names)}}}
        here.make(START_GROUPS, group, TEAM, meta={"labels": {}}, spec=gang)
        for name in names:
            body = marked(name, labels={QUEUE: "lq"}, schedulingGroup={"podGroupName": group})
            body["spec"]["containers"][0]["resources"] = {"limits": {GPU: "1"}, "requests": {GPU: "1"}}
            body["metadata"] |= {"namespace": TEAM, "creationTimestamp": stamp(time.time())}
            here.server.create(PODS, name, body, namespace=TEAM)

    def over() -> None:
        ended(here, *names)
        for name in names:
            here.server.delete(PODS, name, namespace=TEAM)
        here.server.delete(START_GROUPS, group, namespace=TEAM)

    return [
        Stage(begun, lambda: phase(here, *names) == {"Running"}, "the gang runs"),
        Stage(over, lambda: phase(here, *names) == {""}, "its pods are gone"),
    ]


GANGS: Final = (
    Act(
        "a gang runs with a group",
        (Failpoint.START_GROUP,),
        a_gang_runs,
        NATIVE,
        (START_GROUPS,),
    ),
    Act("a gang starts twice", (Failpoint.START_GROUP_REMOVED,), a_gang_starts_twice, NATIVE, (START_GROUPS,)),
    Act("a gang loses a pod", (Failpoint.START_GROUP_LOWERED,), a_gang_loses_a_pod, NATIVE, (START_GROUPS,)),
    Act("a gang has no room", (Failpoint.GANG_SCHEDULED,), a_gang_has_no_room, NATIVE, (START_GROUPS,)),
)

HALF_UNGATED: Final = (
    Act("a gang runs with a group", (Failpoint.POD_PLACED,), a_gang_runs, NATIVE, (START_GROUPS,)),
    Act("a group of a user's starts", (Failpoint.POD_PATCHED,), a_group_of_a_users_starts, CONFIG, (START_GROUPS,)),
)
"""Killed in the middle of a gang's gates. All points of these are killed at in other acts too."""
