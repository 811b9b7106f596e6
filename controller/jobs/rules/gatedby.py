"""The annotation that names the controllers that must agree before a job queues. Source: Kueue's
jobframework/validation.go.
"""

import re
from typing import Final

from controller.jobs.framework import names
from controller.jobs.framework.kind import Refusal, Review, Rule
from controller.jobs.framework.raw import Json, annotations, shown
from controller.jobs.rules import cel
from controller.jobs.rules.fields import annotation_path, forbidden, invalid, too_long
from controller.scheduler.model.gates import FeatureGates

_MAX_GATE_NAME: Final = 63
_DOMAIN_PATH: Final = re.compile(r"(?P<domain>[^/]+)/(?P<path>[A-Za-z0-9/\-._~%!$&'()*+,;=:]+)", re.ASCII)
_DOMAIN_PATH_CEL: Final = f"^{cel.SUBDOMAIN}/[A-Za-z0-9/._~%!$&'()*+,;=:-]+$"


def rule() -> Rule:
    return Rule(refused=_gates, says={"gateNames": _gates_says(), "gatesChange": _gates_change_says()})


def _gates(review: Review) -> list[Refusal]:
    if review.before is None:
        return admission_gates(review.new, review.gates)
    return admission_gates_change(review.before, review.new, review.gates)


def admission_gates(job: Json, gates: FeatureGates) -> list[Refusal]:
    """Refusals of the annotation: it has names of controllers separated by commas, each as ``example.com/name``."""
    found = annotations(job).get(names.ADMISSION_GATED_BY, "")
    if not found or not gates.on("AdmissionGatedBy"):
        return []
    path, listed = annotation_path(names.ADMISSION_GATED_BY), gate_names(found)
    refusals: list[Refusal] = []
    for index, gate in enumerate(listed):
        if len(gate) > _MAX_GATE_NAME:
            refusals.append(too_long(path, f"a gate has at most {_MAX_GATE_NAME} characters, found {len(gate)}"))
        elif gate in listed[:index]:
            refusals.append(invalid(path, f"each gate at most once, found {shown(gate)} again"))
        elif not _is_domain_path(gate):
            refusals.append(invalid(path, f"expected gates such as example.com/name, found {shown(gate)}"))
    return refusals


def _gates_says() -> str:
    path, value = annotation_path(names.ADMISSION_GATED_BY), cel.key("variables.annotations", names.ADMISSION_GATED_BY)
    listed = _listed(value, "g")
    long = cel.text(cel.quoted(f"{path}: a gate has at most {_MAX_GATE_NAME} characters, found "), "string(size(g))")
    again = cel.text(cel.quoted(f"{path}: each gate at most once, found "), cel.shown("g"), "' again'")
    other = cel.text(cel.quoted(f"{path}: expected gates such as example.com/name, found "), cel.shown("g"))
    twice = f"{_listed(value, 'h')}.filter(h, h == g).size() > 1"
    wrong = cel.when(
        f"size(g) > {_MAX_GATE_NAME}", long, cel.when(
            f"!g.matches({cel.quoted(_DOMAIN_PATH_CEL)})", other, cel.when(twice, again)
        ),
    )  # fmt: skip
    found = cel.first(f"{listed}.map(g, {wrong})")
    return cel.when(f"variables.updated || !variables.gates.AdmissionGatedBy || {value} == ''", "''", found)


def _listed(value: str, item: str) -> str:
    return f"{value}.split(',').map({item}, {item}.trim())"


def gate_names(value: str) -> list[str]:
    return [gate.strip() for gate in value.split(",")]


def admission_gates_change(old: Json, new: Json, gates: FeatureGates) -> list[Refusal]:
    """Refusals of gates that a change adds: gates may only be removed."""
    if not gates.on("AdmissionGatedBy"):
        return []
    before, after = (annotations(job).get(names.ADMISSION_GATED_BY, "") for job in (old, new))
    added = set(gate_names(after)) - set(gate_names(before)) if after else set()
    if not added:
        return []
    path = annotation_path(names.ADMISSION_GATED_BY)
    return [forbidden(path, f"gates may only be removed once the object is there; found {shown(min(added))}")]


def _gates_change_says() -> str:
    path, key = annotation_path(names.ADMISSION_GATED_BY), names.ADMISSION_GATED_BY
    before, after = (cel.key(f"variables.{where}", key) for where in ("annotationsBefore", "annotations"))
    sentence = cel.text(
        cel.quoted(f"{path}: gates may only be removed once the object is there; found "), cel.shown("g")
    )
    added = f"{_listed(after, 'g')}.filter(g, !(g in {_listed(before, 'h')})).map(g, {sentence})"
    guard = f"!variables.updated || !variables.gates.AdmissionGatedBy || {after} == ''"
    return cel.when(guard, "''", cel.first(added))


def _is_domain_path(gate: str) -> bool:
    match = _DOMAIN_PATH.fullmatch(gate)
    return match is not None and names.is_object_name(match["domain"])
