"""The examples that say nothing of a repair are the articles' manifests to the letter; others differ by a line."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conformance.corpus import ROOT

pytestmark = pytest.mark.conformance

QUEUES = ROOT / "examples" / "queues"


def article(number: str) -> str:
    shared = Path(os.environ.get("TESSERA_SHARED") or ROOT.parent / "shared")
    (found,) = (shared / "seeds").glob(f"{number}_*")
    return found.read_text()


def manifests(number: str) -> list[dict[str, Any]]:
    """The article's YAML: paragraphs from their first ``apiVersion`` on."""
    parts = [
        part[part.index("apiVersion:") :] for part in article(number).split("\n\n") if "\napiVersion:" in f"\n{part}"
    ]
    return [one for part in parts for one in yaml.safe_load_all(part)]


def example(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((QUEUES / name).read_text()))


def test_what_needs_no_repair_is_the_article_s() -> None:
    found = manifests("004")
    for name in ("flavors-by-product.yaml", "local-queues-per-team.yaml", "job-four-workers.yaml"):
        assert all(one in found for one in example(name)), name


def test_the_volcano_job_is_the_article_s() -> None:
    (job,) = yaml.safe_load_all((ROOT / "examples" / "volcano" / "pytorch-distributed.yaml").read_text())
    assert job in manifests("004")


def test_the_borrowing_queue_differs_by_its_cohort() -> None:
    (repaired,) = example("cluster-queue-in-cohort.yaml")
    assert repaired["spec"].pop("cohort")
    assert repaired in manifests("004")


def test_the_job_differs_by_its_restart_policy() -> None:
    priority, job = example("job-with-priority.yaml")
    assert job["spec"]["template"]["spec"].pop("restartPolicy") == "Never"
    assert [priority, job] == manifests("001")[:2]


def test_the_node_pool_differs_by_its_node_class_and_the_name_of_its_policy() -> None:
    pool, *_ = yaml.safe_load_all((ROOT / "examples" / "capacity" / "karpenter-nodepool.yaml").read_text())
    del pool["spec"]["template"]["spec"]["nodeClassRef"]
    assert pool["spec"]["disruption"]["consolidationPolicy"] == "WhenEmptyOrUnderutilized"
    pool["spec"]["disruption"]["consolidationPolicy"] = "WhenUnderutilized"
    assert pool in manifests("001")


def test_the_kubeflow_jobs_differ_by_their_indentation() -> None:
    text = re.sub(r"(?m)^ +", "", (QUEUES / "kubeflow-jobs.yaml").read_text())
    assert text.partition("\n")[2].strip() in re.sub(r"(?m)^ +", "", article("003"))


def test_the_page_says_of_every_manifest_how_it_is_applied() -> None:
    page = (ROOT / "docs" / "articles.md").read_text()
    rows = re.findall(r"^\| (\d) \| (\w+) `([^`]+)` \|", page, re.MULTILINE)
    for number, seed in (("1", "001"), ("2", "003"), ("3", "004")):
        text = re.sub(r"(?m)^ +", "", article(seed))
        found = re.findall(r"^kind: (\w+)\nmetadata:\nname: (\S+)", text, re.MULTILINE)
        assert [(kind, name) for listed, kind, name in rows if listed == number] == found
        assert len(found) == len(re.findall(r"^kind: ", text, re.MULTILINE))


def test_the_teams_quotas_are_the_article_s() -> None:
    """LocalQueue: team-a (quota: 16 GPUs, can borrow 32), and so on."""
    named = re.findall(r"LocalQueue: (team-\w) +\(quota: (\d+) GPUs, can borrow (\d+)\)", article("004"))
    queues = [one for one in example("team-quotas.yaml") if one["kind"] == "ClusterQueue"]
    given = [one["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0] for one in queues]
    quotas = [(one["nominalQuota"], one["borrowingLimit"]) for one in given]
    assert [(one["metadata"]["name"], *quota) for one, quota in zip(queues, quotas, strict=True)] == [
        (name, int(quota), int(limit)) for name, quota, limit in named
    ]
