"""The plan for a ClusterPolicy: values of Tessera's chart, what is lost, what stays, the steps with their way back.

Pure: a parsed document in, a plan out. What the operator makes of a field is as in its
controllers/object_controls.go (the functions that transform the DaemonSet of the device plugin, and the common ones).
"""

from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct

from cli.migrate.fates import PARTS, ROWS, Fate
from cli.migrate.steps import Step, Target, steps
from cli.migrate.values import Taken, taken
from controller.insight.simulation.documents import Document

GPU_OPERATOR: Final = "gpu-operator"
"""The namespace of the operator where the document does not tell it."""
_HELM_NAMESPACE: Final = "meta.helm.sh/release-namespace"


class Told(Struct, frozen=True):
    """A field that is lost or stays. ``what``: its path."""

    what: str
    why: str


class MigrationPlan(Struct, frozen=True):
    """``values`` are for ``helm template charts/tessera -f -``; ``steps`` in their order."""

    values: dict[str, Any] = {}
    steps: list[Step] = []
    lost: list[Told] = []
    kept: list[Told] = []

    def validate(self) -> None:
        """Raises AssertionError where a field is told twice, or a step has no command or no way back."""
        assert all(each.command and each.undo and each.do for each in self.steps)
        assert all(each.what and each.why for each in [*self.lost, *self.kept])
        assert len({(each.what, each.why) for each in self.lost}) == len(self.lost)
        assert not {each.what for each in self.lost} & {each.what for each in self.kept}


def planned(document: Document, *, image: str = "", nodes: tuple[str, ...] = ()) -> MigrationPlan:
    """The plan for a ClusterPolicy whose values are all allowed.

    ``image``: where the agent's image is; empty: the chart's default. ``nodes``: these nodes alone move, by their
    labels; empty: all at once, by the ClusterPolicy.
    """
    spec = document.data.get("spec") or {}
    found = taken(spec)
    values = found.values | ({"image": {"repository": image}} if image else {})
    values["controller"] = {"enabled": False}
    if nodes:
        values["nodeSelector"] = {f"nvidia.com/gpu.deploy.{PARTS['devicePlugin'][1]}": "false"}
    target = Target(
        policy=document.data["metadata"]["name"],
        namespace=_namespace(document.data),
        nodes=nodes,
        parts={part: (spec.get(part) or {}).get("enabled") for part in PARTS},
        config=values.get("config", {}).get("name", ""),
    )
    lost = _lost(spec, found)
    plan = MigrationPlan(values, steps(target, values), lost, list(_kept(spec)))
    plan.validate()
    return plan


def _namespace(data: dict[str, Any]) -> str:
    """The operator's namespace, as it says itself, else as Helm installed it."""
    status, notes = data.get("status") or {}, data["metadata"].get("annotations") or {}
    told = status.get("namespace") or (notes.get(_HELM_NAMESPACE) if isinstance(notes, dict) else None)
    return told if isinstance(told, str) and told else GPU_OPERATOR


def _lost(spec: dict[str, Any], found: Taken) -> list[Told]:
    every = [Told(f"spec.{path}", row.why) for path, row, _ in _given(spec, Fate.LOST)]
    every += [Told(f"spec.{path}", why) for path, why in found.lost]
    return sorted(dict.fromkeys(every), key=lambda each: each.what)


def _kept(spec: dict[str, Any]) -> Iterator[Told]:
    for path, row, value in _given(spec, Fate.KEPT):
        if not (isinstance(value, dict) and value.get("enabled") is False):
            yield Told(f"spec.{path}", row.why)


def _given(spec: dict[str, Any], fate: Fate) -> Iterator[tuple[str, Any, Any]]:
    """Path, row and value of the fields with this fate that say something, parts that are off left out."""
    for path, row in ROWS.items():
        part = path.partition(".")[0]
        if row.fate is not fate or (part in PARTS and (spec.get(part) or {}).get("enabled") is False):
            continue
        value: Any = spec
        for key in path.split("."):
            value = (value or {}).get(key)
        if _says_something(value) and value not in row.usual:
            yield path, row, value


def _says_something(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_says_something, value.values()))
    return value not in (None, False, "", [])
