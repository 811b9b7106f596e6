"""The page of JobKinds is true: its example is the file's, its fields are the CRD's, its sentences are the code's."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.jobs.framework.raw import JobError, Json
from controller.jobs.kinds.declared import accepting
from controller.jobs.kinds.declared.kind import DeclaredKind
from controller.jobs.kinds.declared.spec import JobKindError, read
from hack.crds.jobkind import jobkind_crd
from tests.support.controller.declarations import job_kind, kind_of
from tests.support.controller.declaredjobs import typed

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "kinds" / "jobkind.md"
EXAMPLES = ROOT / "examples" / "jobkinds"
POD: Json = {"spec": {"containers": [{"name": "c"}]}}


def blocks(language: str = "") -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return [text for marked, text in found if marked == language]


def test_the_example_is_the_files_and_makes_a_kind() -> None:
    shown = yaml.safe_load(blocks("yaml")[0])
    first, role = yaml.safe_load_all((EXAMPLES / "sweeps.yaml").read_text())
    assert shown == first
    assert DeclaredKind(read(shown).spec).framework == "lab.example/sweep"
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"get", "list", "watch", "patch", "update"}
    assert yaml.safe_load((EXAMPLES / "values.yaml").read_text()) == {"controller": {"jobKinds": [shown["spec"]]}}
    kind_of(job_kind(**yaml.safe_load(blocks("yaml")[1])))


def section(title: str) -> str:
    (found,) = re.findall(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return str(found)


def named(text: str) -> set[str]:
    """What stands in the first column, between backticks."""
    return {
        word for row in re.findall(r"^\| ([^|]*`[^|]*)\|", text, re.MULTILINE) for word in re.findall(r"`(\w+)`", row)
    }


def test_every_field_of_the_crd_is_on_the_page_and_no_other() -> None:
    (version,) = jobkind_crd()["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    assert named(section("Fields of `spec`")) == {*spec, *spec["ready"]["properties"]}
    assert named(section("Fields of a pod set")) == set(spec["podSets"]["items"]["properties"])


def test_every_reason_of_a_verdict_is_on_the_page() -> None:
    reasons = {value for key, value in vars(accepting).items() if key.isupper() and isinstance(value, str)}
    told = set(re.findall(r"`(\w+)`", section("What its status says")))
    assert reasons | {"NotAccepted", "Forbidden", "NotServed", "Terminating", "Active"} == told


def of_job_kinds() -> Iterator[str]:
    wrong: tuple[Json, ...] = (
        {"suspend": ".metadata.labels"},
        {"podSets": [{"name": "a", "template": ".spec.a"}, {"name": "b", "template": ".spec.a.b"}]},
        {"podSets": [{"template": ".spec.a"}]},
        {"suspended": None},
        {"ready": {}},
    )
    for spec in wrong:
        yield refused(job_kind(**spec))
    yield refused({**job_kind(), "metadata": {"name": "sweeps"}})


def refused(given: Json) -> str:
    with pytest.raises(JobKindError) as error:
        read(given)
    return str(error.value)


def of_objects() -> Iterator[str]:
    kind = kind_of(job_kind())
    wrong: tuple[Json, ...] = (
        {"search": {}},
        {"trials": {"template": POD, "parallel": "x"}},
        {"trials": {"template": POD, "parallel": -1}},
        {"paused": "yes"},
    )
    for changes in wrong:
        spec: dict[str, Any] = {"paused": True, "search": {"template": POD}, "trials": {"template": POD}, **changes}
        job = typed("lab.example/v1", "Sweep", spec)
        with pytest.raises(JobError) as error:
            (kind.is_suspended if "paused" in changes else kind.pod_sets)(job)
        yield str(error.value)


def test_what_the_page_says_is_refused_is_refused_in_these_words() -> None:
    found = [line for block in blocks() for line in block.splitlines() if line]
    assert found == [*of_job_kinds(), *of_objects()]
