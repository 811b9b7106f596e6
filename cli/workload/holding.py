"""Finds Workloads that hold quota, and would lose it."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from cli.access.cluster import told
from cli.printing.console import Json, ago
from cli.workload.rows import owner, state_of
from controller.cluster.watching.kinds import WORKLOADS
from controller.objects.decode import DecodeError, decode
from controller.objects.meta import find_condition
from controller.objects.workload import Workload
from inventory.words.catalog import plural
from kube.client import Client, Selection
from kube.errors import KubeError


async def holding(client: Client, namespace: str | None, belongs: Callable[[Workload], bool]) -> list[str]:
    """A line for each Workload that holds quota and belongs to the queue. Where they may not be listed, that is the
    line.
    """
    try:
        given = (await client.list_all(WORKLOADS, Json, Selection(namespace=namespace))).items
    except KubeError as failed:
        return [f"those that run, which are not known: {told(failed)}"]
    return [described_now(each) for each in _typed(given) if holds_quota(each) and belongs(each)]


async def workloads_of(client: Client, namespace: str | None) -> list[Workload]:
    """The Workloads of a namespace, or of all. Raises KubeError."""
    return [*_typed((await client.list_all(WORKLOADS, Json, Selection(namespace=namespace))).items)]


def _typed(given: Iterable[Json]) -> Iterable[Workload]:
    for each in given:
        try:
            yield decode(each, Workload)
        except DecodeError:
            continue


def holds_quota(workload: Workload) -> bool:
    return state_of(workload) in ("Admitted", "QuotaReserved")


def described_now(workload: Workload) -> str:
    return described(workload, datetime.now(UTC))


def described(workload: Workload, now: datetime) -> str:
    """A Workload that holds quota, and since when: ``team-a/job-bert-1 (Job bert), 2 pods, for 2h05m``."""
    job = " ".join(filter(None, owner(workload)))
    began = find_condition(workload.status.conditions, "QuotaReserved")
    since = began.last_transition_time if began is not None else None
    pods = plural(sum(each.count for each in workload.spec.pod_sets), "pod")
    ran = f", for {ago((now - since).total_seconds())}" if since is not None else ""
    return f"{workload.key}{f' ({job})' if job else ''}, {pods}{ran}"
