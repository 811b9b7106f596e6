"""Every field of Volcano's and KAI's CRDs is served, refused with its sentence, or without bearing on what runs."""

from functools import cache
from typing import Any

import pytest
import yaml

from cli.migrate.foreign.part import FIELDS
from cli.migrate.foreign.rows import NotYet, Refused
from controller.foreign.rules.refusedkinds import REFUSED
from controller.foreign.rules.ruled import created
from controller.foreign.rules.table import FOREIGN_KINDS
from tests.conformance.jobcrds.fieldrows import uncovered, written
from tests.conformance.jobcrds.kindcrds import below, folder

pytestmark = pytest.mark.conformance

TABLES = {kind: rows for tables in FIELDS.values() for kind, rows in tables.items()}
KINDS = pytest.mark.parametrize("kind", TABLES)
TRIED = {
    "spec.tasks[].topologyPolicy": "restricted",
    "spec.affinity.nodeGroupAffinity.requiredDuringSchedulingIgnoredDuringExecution": ["a"],
    "spec.affinity.nodeGroupAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution": ["a"],
}
"""What is written into a refused field."""


@cache
def paths() -> dict[str, list[str]]:
    """All fields of each kind beside its metadata."""
    found: dict[str, list[str]] = {}
    for system in FIELDS:
        for path in sorted((folder() / system).glob("*.yaml")):
            for crd in filter(None, yaml.safe_load_all(path.read_text())):
                for version in crd["spec"]["versions"]:
                    key = f"{crd['spec']['group']}/{version['name']} {crd['spec']['names']['kind']}"
                    properties = version["schema"]["openAPIV3Schema"]["properties"]
                    own = {
                        name: each
                        for name, each in properties.items()
                        if name not in ("apiVersion", "kind", "metadata")
                    }
                    found[key] = [*own, *(each for name, of in own.items() for each, _ in below(of, name))]
    return found


def test_every_kind_of_both_sets_has_a_table() -> None:
    assert TABLES.keys() == paths().keys()


@KINDS
def test_every_field_has_a_row(kind: str) -> None:
    assert uncovered(paths()[kind], TABLES[kind]) == []


@KINDS
def test_no_field_is_passed_over(kind: str) -> None:
    assert [path for path, row in TABLES[kind].items() if isinstance(row, NotYet)] == []


@KINDS
def test_no_row_is_of_a_foreign_field_that_is_gone(kind: str) -> None:
    assert TABLES[kind].keys() - set(paths()[kind]) == set()


def test_a_new_field_of_a_foreign_kind_has_no_row() -> None:
    kind = "scheduling.volcano.sh/v1beta1 Queue"
    assert uncovered([*paths()[kind], "spec.share"], TABLES[kind]) == ["spec.share"]


REFUSALS = [
    pytest.param(kind, path, row, id=f"{kind.partition(' ')[2]}-{path}")
    for kind, rows in TABLES.items()
    for path, row in rows.items()
    if isinstance(row, Refused)
]


@pytest.mark.parametrize(("kind", "path", "row"), REFUSALS)
def test_what_is_refused_is_refused_with_its_sentence(kind: str, path: str, row: Refused) -> None:
    group, name = kind.partition("/")[0], kind.partition(" ")[2]
    of_kind = [each.sentence for each in REFUSED if (each.group, each.kind) == (group, name)]
    if not of_kind:
        rules = next(each for each in FOREIGN_KINDS if (each.group, each.kind) == (group, name))
        plain: dict[str, Any] = {"metadata": {"name": "a"}, "spec": {"tasks": [{"name": "t", "replicas": 1}]}}
        assert created(rules, plain) == ()
        of_kind = [f"{each.field}: {each.sentence}" for each in created(rules, written(plain, path, TRIED[path]))]
    assert of_kind == [row.sentence]
