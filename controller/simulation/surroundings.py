"""What a workload's queues say, for the steps of its life. Source: the same rules as the live controller's."""

from controller.engine.conditions.status import checks_for
from controller.engine.engine import Engine
from controller.engine.model.resources import ClusterQueueName, FlavorName
from controller.engine.state.intake import local_queue_of
from controller.lifecycle.lifecycle import Surroundings
from controller.objects.workload import Workload


def surroundings(engine: Engine, workload: Workload) -> Surroundings:
    cluster = engine.state.cluster
    local = cluster.local_queues.get(local_queue_of(workload))
    admission = workload.status.admission
    name = admission.cluster_queue if admission is not None else local.spec.cluster_queue if local is not None else ""
    queue = cluster.queues.get(ClusterQueueName(name))
    checks: tuple[str, ...] = ()
    if queue is not None and admission is not None:
        flavors = {FlavorName(flavor) for one in admission.pod_set_assignments for flavor in one.flavors.values()}
        checks = checks_for(queue.object, flavors)
    return Surroundings(
        cluster_queue_stop="None" if queue is None else queue.policies.stop,
        local_queue_stop="None" if local is None else local.spec.stop_policy or "None",
        checks=checks,
    )
