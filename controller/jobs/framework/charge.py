"""What a Workload is charged for, and whether children of its job fit into what is left of that. Pure.

Children that their owner's own controller made start with their owner: they are not checked here, but are in ``taken``.
Every other child waits until its pods find places: each in one pod set, no larger than a pod of it, and no more of them
than the Workload was charged for. A child that has ended takes none.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from controller.jobs.framework.names import POD_SET
from controller.jobs.framework.podsets import JobPodSet, SeenWorkload, typed_template
from controller.jobs.framework.raw import strings
from controller.messages import jobs as words
from controller.objects.core import PodSpec
from controller.objects.meta import Struct
from controller.scheduler.model.podrequests import amounts, one_pod
from controller.scheduler.model.resources import CPU

GroupKind = tuple[str, str]

_POD: Final[GroupKind] = ("", "Pod")
_JOB: Final[GroupKind] = ("batch", "Job")
_CLUSTER: Final[GroupKind] = ("ray.io", "RayCluster")
_KUBEFLOW: Final = ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob")
MAKES: Final[Mapping[GroupKind, frozenset[GroupKind]]] = {
    _POD: frozenset({_POD}),
    _JOB: frozenset({_POD}),
    ("jobset.x-k8s.io", "JobSet"): frozenset({_JOB}),
    **{("kubeflow.org", kind): frozenset({_POD}) for kind in _KUBEFLOW},
    ("kubeflow.org", "MPIJob"): frozenset({_POD, _JOB}),
    ("trainer.kubeflow.org", "TrainJob"): frozenset({("jobset.x-k8s.io", "JobSet")}),
    _CLUSTER: frozenset({_POD, _JOB}),
    ("ray.io", "RayJob"): frozenset({_CLUSTER, _JOB}),
    ("ray.io", "RayService"): frozenset({_CLUSTER}),
    ("sparkoperator.k8s.io", "SparkApplication"): frozenset({_POD}),
}
"""Kinds of children by the kind of their owner. A kind without a key may have children of any kind: AppWrappers, kinds
of a site's own."""


class Pods(Struct, frozen=True, kw_only=True):
    """``count`` pods that each ask for ``requests``. ``pod_set``: the pod set that they name as theirs, empty for
    none.
    """

    count: int
    requests: Mapping[str, int]
    pod_set: str = ""


class Place(Struct, frozen=True, kw_only=True):
    """A pod set as it is charged: ``count`` pods of at most ``requests`` each."""

    name: str
    count: int
    requests: Mapping[str, int]


class Charge(Struct, frozen=True, kw_only=True):
    """``workload``: the admitted Workload of the job above. ``taken``: the pods that run by it, or are about to."""

    workload: SeenWorkload
    taken: tuple[Pods, ...] = ()


class Dealt(Struct, frozen=True, kw_only=True):
    """The pod set that each of the wanted pods is charged to."""

    pod_sets: tuple[str, ...]


class Beyond(Struct, frozen=True, kw_only=True):
    """The wanted pods exceed what is left of the charge."""

    sentence: str


def group_kind(api_version: str, kind: str) -> GroupKind:
    return (api_version.rpartition("/")[0], kind)


def makes(owner: GroupKind, child: GroupKind) -> bool:
    """Whether objects of the owner's kind have such children."""
    known = MAKES.get(owner)
    return known is None or child in known


def asked(spec: PodSpec, count: int, pod_set: str = "") -> Pods:
    return Pods(count=count, requests={str(name): amount for name, amount in one_pod(spec).items()}, pod_set=pod_set)


def pods_of(pod_set: JobPodSet) -> Pods:
    """The pods of a pod set of a job. A start has labelled its template with the pod set that it is charged to."""
    spec = typed_template(pod_set.template, f"pod set {pod_set.name}").spec
    return asked(spec, pod_set.count, strings(pod_set.template, "metadata", "labels").get(POD_SET, ""))


def places(workload: SeenWorkload) -> tuple[Place, ...]:
    """The pod sets of a workload as charged, less the pods that were given back. The charged amounts include the
    namespace's defaults.
    """
    admission = workload.typed.status.admission
    assignments = {one.name: one for one in (() if admission is None else admission.pod_set_assignments)}
    back = {one.name: one.count for one in workload.typed.status.reclaimable_pods}
    charged_places = []
    for pod_set in workload.typed.spec.pod_sets:
        if pod_set.name not in assignments:
            continue
        charged = assignments[pod_set.name]
        count = pod_set.count if charged.count is None else charged.count
        largest = {str(name): amount for name, amount in one_pod(pod_set.template.spec).items()}
        for name, amount in amounts(charged.resource_usage).items():
            largest[name] = max(largest.get(name, 0), amount // count if count else 0)
        charged_places.append(
            Place(name=pod_set.name, count=max(0, count - back.get(pod_set.name, 0)), requests=largest)
        )
    return tuple(charged_places)


def deal(charge: Charge, wanted: Sequence[Pods]) -> Dealt | Beyond:
    """Deals pods to pod sets: each of ``wanted`` goes whole into one, the one that it names, else the smallest that
    holds it.
    """
    known = places(charge.workload)
    left = {place.name: place.count for place in known}
    for pods in charge.taken:
        _take(left, known, pods)
    chosen = []
    for pods in wanted:
        fitting = [place for place in known if left[place.name] >= pods.count and _holds(place, pods)]
        named = [place for place in fitting if place.name == pods.pod_set]
        place = min(named or fitting, key=lambda one: (sorted(one.requests.items()), one.name), default=None)
        if place is None:
            return Beyond(sentence=_beyond(charge.workload.name, known, left, pods))
        left[place.name] -= pods.count
        chosen.append(place.name)
    return Dealt(pod_sets=tuple(chosen))


def _take(left: dict[str, int], known: Sequence[Place], pods: Pods) -> None:
    """Takes the places of pods that run already: first of their own pod set, then of those that would hold them, then
    any: they run, charged or not.
    """
    order = sorted(known, key=lambda place: (place.name != pods.pod_set, not _holds(place, pods)))
    count = pods.count
    for place in order:
        taken = min(count, left[place.name])
        left[place.name] -= taken
        count -= taken


def _holds(place: Place, pods: Pods) -> bool:
    return all(amount <= place.requests.get(name, 0) for name, amount in pods.requests.items())


def _beyond(workload: str, known: Sequence[Place], left: Mapping[str, int], pods: Pods) -> str:
    left_of = ", ".join(f"{left[one.name]} of {one.count} of {one.name} ({_shown(one.requests)})" for one in known)
    return words.beyond_the_charge(workload, pods.count, _shown(pods.requests), left_of or "none")


def _shown(requests: Mapping[str, int]) -> str:
    listed = (f"{name} {amount}{'m' if name == CPU else ''}" for name, amount in sorted(requests.items()) if amount)
    return ", ".join(listed) or "nothing"


def validate(charge: Charge, wanted: Sequence[Pods], dealt: Dealt | Beyond) -> None:
    """Recomputes the invariant. Raises AssertionError if pods that were let in exceed the charge, whatever runs
    already.
    """
    if isinstance(dealt, Beyond):
        return
    by_name = {place.name: place for place in places(charge.workload)}
    assert len(dealt.pod_sets) == len(wanted)
    for name, pods in zip(dealt.pod_sets, wanted, strict=True):
        assert all(amount <= by_name[name].requests.get(key, 0) for key, amount in pods.requests.items())
    for name, place in by_name.items():
        own = sum(pods.count for chosen, pods in zip(dealt.pod_sets, wanted, strict=True) if chosen == name)
        assert own <= place.count
    total = sum(place.count for place in by_name.values())
    let_in, running = sum(pods.count for pods in wanted), sum(pods.count for pods in charge.taken)
    assert let_in == 0 or let_in + running <= total
