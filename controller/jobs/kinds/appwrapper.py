"""``workload.codeflare.dev/v1beta2`` AppWrapper: objects of other kinds that start and stop together.

Its pod sets are numbered over all components. A start writes ``podSetInfos`` of the component, in the order of its pod
sets, and the AppWrapper's controller merges them into the objects that it creates.

Pods of a component belong to the AppWrapper's workload. They must lie on the paths that the component declares, or on
those that follow from its kind.
"""

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Final

from controller.jobs.framework.kind import Outcome, Refusal, Review, Rule
from controller.jobs.framework.podsets import SeenWorkload
from controller.jobs.framework.raw import (
    JobError,
    Json,
    has_condition,
    integer,
    mapping,
    sequence,
    shown,
    strings,
    text,
)
from controller.jobs.framework.templated import Path, Slot, TemplatedKind, dotted, located, replaced, selector
from controller.jobs.kinds.wrapped import PodsOf, pods_of

_PREFIX: Final = "workload.codeflare.dev.appwrapper/"
_INDEX_LABEL: Final = _PREFIX + "tas-pod-index-label"
_SUB_GROUP_LABEL: Final = _PREFIX + "tas-sub-group-index-label"
_SUB_GROUP_COUNT: Final = _PREFIX + "tas-sub-group-count"

_STEP: Final = re.compile(r"\.?([^.\[\]]+)|\[([0-9]{1,9})\]", re.ASCII)
_MAPS: Final = (("labels", "metadata"), ("annotations", "metadata"), ("nodeSelector", "spec"))
_LISTS: Final = ("tolerations", "schedulingGates")

# These API groups have no known objects without pods.
_WITH_PODS: Final = ("apps", "batch", "ray.io", "kubeflow.org", "trainer.kubeflow.org", "jobset.x-k8s.io")


class AppWrapper(TemplatedKind):
    framework = "workload.codeflare.dev/appwrapper"
    group = "workload.codeflare.dev"
    version = "v1beta2"
    kind = "AppWrapper"
    plural = "appwrappers"
    template_paths = ("spec.components[].template", "spec.components[].template.spec.template")
    managed_by_path = ("spec", "managedBy")
    own_controller = "workload.codeflare.dev/appwrapper-controller"

    def slots(self, job: Json) -> tuple[Slot, ...]:
        name, slots = text(job, "metadata", "name").lower(), list[Slot]()
        for index in range(len(_components(job))):
            for pods in _pod_sets(job, index):
                slots.append(
                    Slot(
                        name=f"{name}-{len(slots)}",
                        path=("spec", "components", index, *pods.path),
                        count=pods.count,
                        index_label=pods.index_label,
                        sub_group_label=pods.sub_group_label,
                        sub_group_count=pods.sub_group_count,
                        charged=pods.charged,
                        injected=pods.injected,
                    )
                )
        return tuple(slots)

    def placed(self, job: Json, wanted: dict[str, Json]) -> Json:
        slots = iter(self.slots(job))
        for index, component in enumerate(_components(job)):
            own = [next(slots) for _ in _pod_sets(job, index)]
            infos = [_additions(slot.template(job), wanted[slot.name]) for slot in own]
            given = infos if any(infos) else []
            if sequence(component, "podSetInfos") != given:
                job = replaced(job, ("spec", "components", index), _with_infos(component, given))
        return job

    def is_started(self, job: Json, _workload: SeenWorkload) -> bool:
        return any(sequence(component, "podSetInfos") for component in _components(job))

    def pod_selector(self, job: Json) -> str:
        return selector("workload.codeflare.dev/appwrapper", job)

    def finished(self, job: Json) -> Outcome | None:
        """How the AppWrapper ended. A failed one is finished when its objects have been deleted."""
        phase = text(job, "status", "phase")
        if phase == "Succeeded":
            return Outcome(reason="Succeeded", message="AppWrapper finished successfully")
        if phase == "Failed" and not has_condition(job, "ResourcesDeployed"):
            return Outcome(reason="Failed", message="AppWrapper failed")
        return None

    def pods_ready(self, job: Json) -> bool:
        return has_condition(job, "PodsReady")

    def is_active(self, job: Json) -> bool:
        return has_condition(job, "QuotaReserved")

    def says_suspended(self, job: Json) -> bool:
        return text(job, "status", "phase") in ("", "Suspended")

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """The kind's rules, without CEL: the object of a component is read as its own kind reads it."""
        return (Rule(refused=_without_pods),)


def _without_pods(review: Review) -> Iterator[Refusal]:
    for index, component in enumerate(_components(review.new)):
        template = mapping(component, "template")
        version, kind = text(template, "apiVersion"), text(template, "kind")
        if version.rpartition("/")[0] in _WITH_PODS and not _pod_sets(review.new, index):
            yield Refusal(
                type="Required",
                field=f"spec.components[{index}].podSets",
                sentence=f"where the pods of {kind} are does not follow from its kind: expected their paths",
            )


def _components(job: Json) -> list[Json]:
    return sequence(job, "spec", "components")


def _pod_sets(job: Json, index: int) -> tuple[PodsOf, ...]:
    """The pod sets of a component: as declared, with the counts of its object if its kind is known; else as its kind
    has them.
    """
    component = _components(job)[index]
    inferred = {pods.path: pods for pods in pods_of(mapping(component, "template"))}
    declared = sequence(component, "podSets")
    if not declared:
        return tuple(inferred.values())
    pod_sets = []
    for number, item in enumerate(declared):
        where = f"spec.components[{index}].podSets[{number}].path"
        path = _path(text(item, "path"), where)
        if not isinstance(located(component, path), dict):
            raise JobError(f"{where}: expected the path of a pod template, found {shown(dotted(path))}")
        pod_sets.append(inferred.get(path) or _declared(item, path))
    return tuple(pod_sets)


def _declared(item: Json, path: Path) -> PodsOf:
    marks = strings(item, "annotations")
    count = marks.get(_SUB_GROUP_COUNT, "")
    return PodsOf(
        path=path,
        count=integer(item, "replicas", default=1),
        index_label=marks.get(_INDEX_LABEL),
        sub_group_label=marks.get(_SUB_GROUP_LABEL),
        sub_group_count=int(count) if count.isascii() and count.isdecimal() else None,
    )


def _path(given: str, where: str) -> Path:
    """The path in a text such as ``template.spec.replicatedJobs[0].template.spec.template``. Raises JobError."""
    steps: list[str | int] = []
    at = 0
    while at < len(given):
        step = _STEP.match(given, at)
        if step is None:
            break
        steps.append(step[1] if step[2] is None else int(step[2]))
        at = step.end()
    if at < len(given) or steps[:1] != ["template"]:
        raise JobError(f"{where}: expected a path that begins with template, found {shown(given)}")
    return tuple(steps)


def _additions(original: Json, wanted: Json) -> Json:
    """The placement that ``wanted`` has beyond ``original``, as a pod set info."""
    additions: Json = {}
    for key, part in _MAPS:
        have = strings(original, part, key)
        additions[key] = {name: value for name, value in strings(wanted, part, key).items() if have.get(name) != value}
    for key in _LISTS:
        listed = sequence(original, "spec", key)
        additions[key] = [item for item in sequence(wanted, "spec", key) if item not in listed]
    return {key: value for key, value in additions.items() if value}


def _with_infos(component: Json, infos: list[Json]) -> Json:
    rest = {key: value for key, value in component.items() if key != "podSetInfos"}
    return {**rest, "podSetInfos": infos} if infos else rest
