"""What has to happen before a workload is tried whose queues take nothing in."""

from collections.abc import Sequence

from controller.messages import forecasts as words
from controller.scheduler.engine import Engine
from controller.scheduler.model.resources import LocalQueueKey
from controller.scheduler.state.activity import Inactive, local_queue_problem


def opens_when(engine: Engine, key: LocalQueueKey) -> str | None:
    """``the ClusterQueue is resumed``. None where its queues are open. No names: whoever reads it may not see all."""
    cluster = engine.state.cluster
    local, queue = cluster.local_queues.get(key), engine.queue_of(key)
    problems = engine.inactive(queue.name) if queue is not None else ()
    if local is None:
        # A foreign queue has none.
        return words.local_queue_created() if queue is None else _opens(problems)
    if local.metadata.deletion_timestamp is not None:
        return words.local_queue_created_anew()
    found = local_queue_problem(local, cluster, queue_active=not problems)
    match found.reason if found is not None else None:
        case None:
            return None
        case "Stopped":
            return words.local_queue_resumed()
        case "ClusterQueueDoesNotExist":
            return words.cluster_queue_created()
    return _opens(problems)


def _opens(problems: Sequence[Inactive]) -> str | None:
    match problems[0].reason if problems else None:
        case None:
            return None
        case "Terminating":
            return words.cluster_queue_created_anew()
        case "Stopped":
            return words.cluster_queue_resumed()
        case "FlavorNotFound":
            return words.flavors_created()
        case "TopologyNotFound":
            return words.topologies_created()
        case "AdmissionCheckNotFound":
            return words.checks_created()
    return words.cluster_queue_active()
