"""CRDs from structs: what the walker makes of a type, a shape, and of Kubernetes' own document."""

import json
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
import yaml

from controller.objects import queues, workload
from controller.objects.meta import Int32, Int64, Struct
from controller.objects.quantity import Quantity
from hack.crds import CRDS, kueue, podtemplate
from hack.crds.older import V1BETA1, OlderStructs, Otherwise
from hack.crds.schema import Shape, laid_over, structural


class Inner(Struct, frozen=True, kw_only=True):
    name: str = ""
    kind: Literal["A", "B"] | None = None


class Outer(Struct, frozen=True, kw_only=True):
    small: Int32 = 0
    large: Int64 | None = None
    count: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] = 0
    on: bool = False
    at: datetime | None = None
    amount: Quantity | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    many_parts: tuple[Inner, ...] = ()


def test_a_struct_s_types_become_a_structural_schema() -> None:
    fields = structural(Outer, {})["properties"]
    assert fields["small"] == {"type": "integer", "format": "int32"}
    assert fields["large"] == {"type": "integer", "format": "int64"}
    assert fields["count"] == {"type": "integer", "format": "int32", "minimum": 0}
    assert fields["at"] == {"type": "string", "format": "date-time"}
    assert fields["amount"]["x-kubernetes-int-or-string"]
    assert fields["labels"] == {"type": "object", "additionalProperties": {"type": "string"}}
    assert fields["manyParts"]["items"]["properties"]["kind"] == {"type": "string", "enum": ["A", "B"]}


def test_a_shape_adds_what_no_type_says() -> None:
    shapes: dict[type, Shape] = {
        Inner: Shape(("name",), {"name": {"maxLength": 5}, "unread": {"type": "string"}}, without=("kind",)),
        Outer: Shape(fields={"manyParts": {"maxItems": 2}}, rules=(("self.on", "must be on"),)),
    }
    made = structural(Outer, shapes)
    assert made["x-kubernetes-validations"] == [{"rule": "self.on", "message": "must be on"}]
    assert made["properties"]["manyParts"]["maxItems"] == 2
    assert made["properties"]["manyParts"]["items"] == {
        "type": "object",
        "required": ["name"],
        "properties": {"name": {"type": "string", "maxLength": 5}, "unread": {"type": "string"}},
    }


def test_a_shape_that_names_no_field_is_an_error() -> None:
    with pytest.raises(AssertionError, match="nme"):
        structural(Inner, {Inner: Shape(required=("nme",))})


def test_laying_over_goes_deep_and_takes_away() -> None:
    assert laid_over({"a": {"b": 1, "c": 2}}, {"a": {"b": None, "d": 3}}) == {"a": {"c": 2, "d": 3}}


def test_kubernetes_document_is_reduced_to_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meta = {name: {"type": "string", "description": "prose"} for name in ("name", "namespace", "uid", "labels")}
    lists = {name: {"type": "array", "x-kubernetes-list-type": "set"} for name in ("annotations", "finalizers")}
    port = {"properties": {"port": {"type": "integer"}, "protocol": {"type": "string", "enum": ["TCP"], "default": ""}}}
    ports = {"type": "array", "x-kubernetes-list-map-keys": ["protocol"], "items": {"allOf": [{"$ref": "#/x/Port"}]}}
    document = {
        podtemplate.ROOT: {"properties": {"metadata": {"$ref": f"#/x/{podtemplate.META}"}, "ports": ports}},
        podtemplate.META: {"properties": {**meta, **lists}},
        "Port": port,
        "Unused": {"type": "string"},
    }
    (tmp_path / "openapi.json").write_text(json.dumps({"components": {"schemas": document}}))
    monkeypatch.setattr(podtemplate, "KEPT", tmp_path / "kept.json")
    podtemplate.take(tmp_path / "openapi.json")
    podtemplate.pod_template.cache_clear()
    made = podtemplate.pod_template()["properties"]
    podtemplate.pod_template.cache_clear()
    assert set(made["metadata"]["properties"]) == {"annotations", "finalizers", "labels", "name", "namespace"}
    assert made["ports"]["items"]["properties"]["protocol"] == {"type": "string", "default": "TCP"}
    assert "Unused" not in (tmp_path / "kept.json").read_text()


def schemas(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, list):
        return [one for each in value for one in schemas(each)]
    return [value, *(one for each in value.values() for one in schemas(each))] if isinstance(value, dict) else []


def test_every_kind_is_served_in_both_versions_and_stored_in_the_newer() -> None:
    for crd in kueue.crds():
        versions = {one["name"]: (one["served"], one["storage"]) for one in crd["spec"]["versions"]}
        assert versions == {"v1beta1": (True, False), "v1beta2": (True, True)}
        assert not [one for one in schemas(crd["spec"]["versions"]) if "$ref" in one]


def test_what_differs_by_more_than_nothing_is_converted() -> None:
    strategies = {crd["spec"]["names"]["kind"]: crd["spec"]["conversion"]["strategy"] for crd in kueue.crds()}
    converted = {kind for kind, strategy in strategies.items() if strategy == "Webhook"}
    assert converted == {"ClusterQueue", "Cohort", "LocalQueue", "Workload"}


def test_a_workload_pays_for_no_rule_at_its_root() -> None:
    (crd,) = [one for one in kueue.crds() if one["spec"]["names"]["kind"] == "Workload"]
    for version in crd["spec"]["versions"]:
        schema = version["schema"]["openAPIV3Schema"]
        roots = [schema, schema["properties"]["spec"], schema["properties"]["status"]]
        assert not [one for one in roots if "x-kubernetes-validations" in one]


def test_a_column_that_is_printed_as_an_age_has_a_time_that_is_past() -> None:
    """kubectl prints a date as how long ago it was, and a time to come as ``<invalid>``."""
    crds = [yaml.safe_load(path.read_text()) for path in CRDS.glob("*.yaml")]
    columns = [
        (crd["metadata"]["name"], each["jsonPath"])
        for crd in crds
        for version in crd["spec"]["versions"]
        for each in version.get("additionalPrinterColumns", ())
        if each["type"] == "date"
    ]
    assert {path for _, path in columns} == {".metadata.creationTimestamp"}, columns


def test_files_hold_no_anchors() -> None:
    assert not [path for path in CRDS.glob("*.yaml") if "&id0" in path.read_text()]


def test_the_older_structs_follow_from_the_newer() -> None:
    """A struct that does not differ, nor any part of it, is the same; a field added to v1beta2 is in v1beta1 too."""
    assert V1BETA1[queues.ResourceFlavor] is queues.ResourceFlavor
    older = V1BETA1[workload.Workload]
    assert older is not workload.Workload
    assert V1BETA1[workload.Workload] is older
    spec = {each.name for each in msgspec.structs.fields(V1BETA1[workload.WorkloadSpec])}
    newer = {each.name for each in msgspec.structs.fields(workload.WorkloadSpec)}
    assert spec - newer == {"priority_class_name", "priority_class_source"}
    assert newer - spec == {"priority_class_ref", "preemption_gates"}


def test_a_difference_from_a_field_that_is_not_there_is_a_mistake() -> None:
    with pytest.raises(AssertionError, match="AdmissionScope: no fields"):
        OlderStructs({queues.AdmissionScope: Otherwise(without=("mode",))})[queues.AdmissionScope]
