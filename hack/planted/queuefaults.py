"""Faults of the controller."""

from typing import Final

from hack.planted.planting import Fault

_HISTORY: Final = ("history",)
_BOTH: Final = ("history", "outside")

QUEUE_FAULTS: Final = (
    Fault(
        name="forgotten release on eviction",
        function="Cluster.remove_holder",
        before="self.release(holder)",
        after="""\
if not holder.evicted:
    self.release(holder)
""",
        program="queues",
        nets=_BOTH,
        says="What an evicted workload had is never given to anybody again.",
    ),
    Fault(
        name="double charge",
        function="Cluster.replace_holder",
        before="self._exchange(known, holder)",
        after="""\
self._exchange(known, holder)
self.charge(holder)
""",
        program="queues",
        nets=_BOTH,
        says="The echo of an admission is charged once more, and quota lies idle.",
    ),
    Fault(
        name="undo that skips an entry",
        function="QuotaTree.add_usage",
        before="self.undo.record(self.remove_usage, name, dict(usage))",
        after="self.undo.record(self.remove_usage, name, dict(list(usage.items())[:1]))",
        program="queues",
        nets=_BOTH,
        says="A try leaves one of its charges behind.",
    ),
    Fault(
        name="admitted before checks are ready",
        function="admitted_if_ready",
        before="not checks_ready(workload, checks) or any(state.state != 'Ready' for state in states)",
        after="any(state.state == 'Rejected' for state in states)",
        program="queues",
        nets=_BOTH,
        says="Pods start before what their admission check provides is there.",
    ),
    Fault(
        name="sidecars uncharged",
        function="container_requests",
        before="""\
_add(running, container.resources.requests)
_add(sidecars, container.resources.requests)
""",
        after="_add(sidecars, container.resources.requests)",
        program="queues",
        nets=_BOTH,
        says="A team gets more GPUs than its quota by asking for them in sidecars.",
    ),
    Fault(
        name="a refused admission keeps its quota",
        function="Outcomes._unadmit",
        before="""\
state.unwritten.drop_admission(key)
state.cluster.remove_holder(key)
""",
        after="",
        program="queues",
        nets=_HISTORY,
        says="Each write that the API server refuses costs quota for ever.",
    ),
    Fault(
        name="lost wake-up",
        function="EngineState.released",
        before="self.wake(holder.cluster_queue, departed)",
        after="",
        program="queues",
        nets=_BOTH,
        says="A workload waits on though what it waits for is free.",
    ),
    Fault(
        name="gang charged n - 1",
        function="scaled",
        before="amount * count",
        after="amount * max(1, count - 1)",
        program="queues",
        nets=_BOTH,
        says="Every gang takes a pod more than its quota pays for.",
    ),
    Fault(
        name="wrong flavor charged",
        function="usage_of",
        before="FlavorResource(flavor, resource)",
        after="FlavorResource(next(iter(pod_set.flavors.values())), resource)",
        program="queues",
        nets=_BOTH,
        says="GPUs are charged to the flavor of the CPUs, and their own quota is never used up.",
    ),
    Fault(
        name="borrowing beyond the limit",
        function="Cell.available",
        before="""\
if bound < least:
    least = bound
""",
        after="",
        program="queues",
        nets=_BOTH,
        says="A queue borrows all that its cohort has, whatever its borrowing limit says.",
    ),
    Fault(
        name="label off then on",
        function="_job",
        before="not is_managed(job, seen.namespace_labels, settings)",
        after="not is_managed(job, seen.namespace_labels, settings) or not (own or context.kind.is_suspended(job))",
        program="queues",
        nets=_HISTORY,
        says="A job that leaves its queue and comes back runs without ever being admitted.",
    ),
    Fault(
        name="a child released early",
        function="_child",
        before="admitted or context.kind.is_suspended(context.job)",
        after="not waits or context.kind.is_suspended(context.job)",
        program="queues",
        nets=_HISTORY,
        says="A part of a job runs before the job is admitted.",
    ),
    Fault(
        name="order within a queue turned around at equal priority",
        function="PendingWorkload.order",
        before="self.queued_at_s",
        after="-self.queued_at_s",
        program="queues",
        nets=_BOTH,
        says="The last who came is the first who is served.",
    ),
    Fault(
        name="stale lease write",
        function="Leadership._call",
        before='{"metadata": {"resourceVersion": version}, "spec": spec}',
        after='{"spec": spec}',
        program="leases",
        nets=_HISTORY,
        says="A former leader's write, held up on its way, takes the lease from the present one.",
    ),
    Fault(
        name="the breaker forgets at a new leader",
        function="RepairBreaker._in_action",
        before="self._known(node).items()",
        after="self._ours.get(node, {}).items()",
        program="grants",
        nets=_HISTORY,
        says="After a change of leader twice the budget of GPUs is in repair at a time.",
    ),
    Fault(
        name="rights cached without the namespace",
        function="Reviews.may",
        before="(user, right)",
        after="(user, right.verb, right.resource, right.subresource, right.name, right.path)",
        program="accounts",
        nets=("account",),
        says="Who may see a queue of one namespace sees the queue of that name in every other.",
    ),
    Fault(
        name="forecast asked of another namespace",
        function="_identified",
        before="""\
if metadata.get('namespace', namespace) != namespace:
    raise NotQueuedError(f'metadata.namespace: found another one, expected {namespace}')
name = metadata.get('name') or metadata.get('generateName') or NAME
created = {**metadata, 'namespace': namespace, 'name': name, 'uid': NAME}
""",
        after="""\
name = metadata.get('name') or metadata.get('generateName') or NAME
created = {'namespace': namespace, **metadata, 'name': name, 'uid': NAME}
""",
        program="accounts",
        nets=("account",),
        says="Who may ask what would become of a job in one namespace learns what waits in another.",
    ),
)
