"""Our CRDs beside Kueue's, without a cluster: the same names, and the same answer of both schemas to every slip."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.conformance import corpus
from tests.conformance.crds import crdfiles, mutations
from tests.conformance.crds.corpusobjects import corpus_objects

pytestmark = pytest.mark.conformance

HERE = Path(__file__).parent
OBJECTS = list(yaml.safe_load_all((HERE / "objects.yaml").read_text()))
STATUSES = yaml.safe_load((HERE / "statuses.yaml").read_text())
# Refused by Kueue's CEL; by our schema, in whose place a policy or a plain enumeration stands where CEL does not.
CEL = {"effect", "operator"}


def keys_are_unique(
    _: Any, keys: list[str], items: Any, schema: dict[str, Any]
) -> Iterator[jsonschema.ValidationError]:
    """x-kubernetes-list-map-keys, as the API server reads it."""
    if isinstance(items, list) and all(isinstance(item, dict) for item in items):
        properties = schema["items"]["properties"]
        found = [tuple(str(item.get(key, properties[key].get("default"))) for key in keys) for item in items]
        if len(set(found)) < len(found):
            yield jsonschema.ValidationError("a key twice")


def items_are_unique(_: Any, kind: str, items: Any, __: Any) -> Iterator[jsonschema.ValidationError]:
    if kind == "set" and isinstance(items, list) and len({str(item) for item in items}) < len(items):
        yield jsonschema.ValidationError("an item twice")


Validator: Any = jsonschema.validators.extend(  # type: ignore[no-untyped-call]
    jsonschema.Draft7Validator,
    {"x-kubernetes-list-map-keys": keys_are_unique, "x-kubernetes-list-type": items_are_unique},
)


@cache
def validator(kind: str, version: str, *, ours: bool) -> Any:
    crd = crdfiles.ours(kind) if ours else crdfiles.peer(kind)
    return Validator(readable(crdfiles.schema(crd, version)))


def readable(schema: Any) -> Any:
    """A schema of which Python knows the patterns: Go takes a flag within one."""
    if isinstance(schema, dict):
        made = {key: readable(value) for key, value in schema.items()}
        if isinstance(pattern := schema.get("pattern"), str):
            made["pattern"] = "(?i)" + pattern.replace("(?i)", "") if "(?i)" in pattern else pattern
        return made
    return [readable(each) for each in schema] if isinstance(schema, list) else schema


def without_nulls(value: Any) -> Any:
    """The API server drops null before it looks at a schema."""
    if isinstance(value, dict):
        return {key: without_nulls(each) for key, each in value.items() if each is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value


def answers(given: dict[str, Any]) -> tuple[bool, bool]:
    kind, version = given["kind"], given["apiVersion"].rpartition("/")[2]
    seen = without_nulls(given)
    mine, theirs = (validator(kind, version, ours=ours).is_valid(seen) for ours in (True, False))
    return mine, theirs


def by_enumeration(what: str) -> bool:
    """Whether it is one of the few values that Kueue's schema lets through, its CEL refuses, and we enumerate."""
    return any(f".{name}" in what for name in CEL)


@pytest.mark.parametrize("given", OBJECTS, ids=lambda one: f"{one['kind']}-{one['apiVersion'].rpartition('/')[2]}")
def test_a_slip_gets_the_same_answer_of_both_schemas(given: dict[str, Any]) -> None:
    kind, version = given["kind"], given["apiVersion"].rpartition("/")[2]
    schema = crdfiles.schema(crdfiles.peer(kind), version)
    slips = list(mutations.slips(schema, given))
    if version == "v1beta2" and kind in STATUSES:
        inner = mutations.changes(schema["properties"]["status"], STATUSES[kind], "status")
        slips += [(what, {**given, "status": status}) for what, status in inner]
    found = {what: answers(slip) for what, slip in slips}
    assert answers(given) == (True, True)
    assert {True, False} == {theirs for _, theirs in found.values()}
    wrong = {what: (mine, theirs) for what, (mine, theirs) in found.items() if mine != theirs}
    assert not {what for what, (mine, _) in wrong.items() if mine or not by_enumeration(what)}


def test_the_corpus_s_objects_get_the_same_answer_of_both_schemas() -> None:
    found = corpus_objects(corpus.folder("kueue"))
    assert len(found) > 500
    assert not [one["metadata"]["name"] for one in found if len(set(answers(one))) > 1]


@pytest.mark.parametrize("kind", crdfiles.PLURALS)
def test_names_versions_and_columns_are_the_peers(kind: str) -> None:
    ours, peer = crdfiles.ours(kind)["spec"], crdfiles.peer(kind)["spec"]
    assert (ours["names"], ours["scope"], ours["group"]) == (peer["names"], peer["scope"], peer["group"])
    for version in crdfiles.VERSIONS:
        mine, theirs = (crdfiles.version(crd, version) for crd in (crdfiles.ours(kind), crdfiles.peer(kind)))
        for key in ("served", "storage", "selectableFields"):
            assert mine.get(key) == theirs.get(key)
        assert (mine.get("subresources") or None) == (theirs.get("subresources") or None)
        shown = [
            [{key: value for key, value in column.items() if key != "description"} for column in columns]
            for columns in (mine.get("additionalPrinterColumns", ()), theirs.get("additionalPrinterColumns", ()))
        ]
        assert shown[0] == shown[1]


def test_a_pod_template_is_bounded_as_the_peers() -> None:
    """But for defaults, which a template gets when it becomes a pod, and the lists and maps that are one whole. Fields
    that the peers' older Kubernetes has not are ours alone.
    """

    def bare(schema: Any) -> Any:
        if not isinstance(schema, dict):
            return schema
        dropped = ("description", "default", "x-kubernetes-map-type")
        made = {key: bare(value) for key, value in schema.items() if key not in dropped or not is_keyword(schema)}
        return made | {"required": sorted(made["required"])} if isinstance(made.get("required"), list) else made

    def known(mine: Any, theirs: Any) -> Any:
        if not isinstance(mine, dict) or not isinstance(theirs, dict):
            return mine
        fields = theirs.get("properties")
        made = {key: known(value, theirs.get(key)) for key, value in mine.items()}
        if isinstance(fields, dict) and is_keyword(mine):
            own = {key: known(value, fields[key]) for key, value in mine["properties"].items() if key in fields}
            return made | {"properties": own}
        return made

    def is_keyword(schema: dict[str, Any]) -> bool:
        return "type" in schema or "x-kubernetes-int-or-string" in schema

    for version in crdfiles.VERSIONS:
        mine, theirs = (
            crdfiles.schema(crd, version)["properties"]["spec"]["properties"]["podSets"]["items"]["properties"][
                "template"
            ]
            for crd in (crdfiles.ours("Workload"), crdfiles.peer("Workload"))
        )
        assert known(bare(mine), bare(theirs)) == bare(theirs)
