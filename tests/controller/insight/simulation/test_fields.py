"""Real fields are known, all of them; others are told with their line and what was likely meant."""

import re
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from controller.insight.simulation.documents import InputError, documents, judged_values, unknown
from controller.insight.simulation.fields import unknown_fields
from controller.insight.simulation.submissions import KINDS_OF_JOBS, POD
from controller.objects.conversion import HUB, OLD
from controller.objects.decode import KINDS

EXAMPLES = Path(__file__).parents[4] / "examples"
META = {
    "name": "n",
    "generateName": "n-",
    "namespace": "default",
    "uid": "u",
    "resourceVersion": "1",
    "generation": 1,
    "creationTimestamp": None,
    "deletionTimestamp": None,
    "deletionGracePeriodSeconds": 0,
    "selfLink": "",
    "labels": {"any.example/key": "v"},
    "annotations": {"tessera.dev/arrival": "10s"},
    "finalizers": [],
    "ownerReferences": [
        {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True, "blockOwnerDeletion": True}
    ],
    "managedFields": [
        {
            "manager": "kubectl",
            "operation": "Update",
            "apiVersion": "v1",
            "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:anything": {}}},
            "subresource": "status",
        }
    ],
}
READ = sorted({*KINDS, *KINDS_OF_JOBS, POD, *((OLD, kind) for version, kind in KINDS if version == HUB)})


def told(text: str) -> list[str]:
    return [line for document in documents(text, "f.yaml") for line in unknown(document)]


@pytest.mark.parametrize(("version", "kind"), READ)
def test_every_kind_that_is_read_has_all_of_metadata_and_nothing_beside_its_fields(version: str, kind: str) -> None:
    given = {"apiVersion": version, "kind": kind, "metadata": META}
    assert list(unknown_fields(given)) == []
    (found,) = unknown_fields({**given, "specs": 1})
    assert "kind" in found.known


def pods() -> dict[str, Any]:
    """What the engine has no use for, from all over a pod."""
    return {
        "activeDeadlineSeconds": 1,
        "affinity": {
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "preference": {"matchFields": [{"key": "k", "operator": "In", "values": ["v"]}]}}
                ]
            }
        },
        "dnsConfig": {"options": [{"name": "ndots", "value": "2"}]},
        "ephemeralContainers": [{"name": "e", "targetContainerName": "c"}],
        "hostAliases": [{"ip": "127.0.0.1", "hostnames": ["h"]}],
        "readinessGates": [{"conditionType": "c"}],
        "resourceClaims": [{"name": "r", "resourceClaimTemplateName": "t"}],
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}, "sysctls": [{"name": "n", "value": "v"}]},
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "k", "matchLabelKeys": ["l"]}],
        "volumes": [
            {"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "p", "audience": "a"}}]}},
            {"name": "w", "ephemeral": {"volumeClaimTemplate": {"spec": {"resources": {"requests": {"storage": 1}}}}}},
            {"name": "x", "csi": {"driver": "d", "volumeAttributes": {"any": "v"}}},
        ],
        "containers": [
            {
                "name": "c",
                "env": [{"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "lifecycle": {"preStop": {"sleep": {"seconds": 1}}},
                "livenessProbe": {"httpGet": {"path": "/", "port": 1, "httpHeaders": [{"name": "n", "value": "v"}]}},
                "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
                "resources": {"limits": {"nvidia.com/gpu": 1}, "claims": [{"name": "r"}]},
            }
        ],
    }


@pytest.mark.parametrize(
    ("version", "kind", "spec"),
    [
        ("v1", "Pod", pods()),
        ("batch/v1", "Job", {"template": {"metadata": META, "spec": pods()}, "podFailurePolicy": {"rules": []}}),
        (HUB, "Workload", {"podSets": [{"name": "main", "template": {"metadata": META, "spec": pods()}}]}),
    ],
)
def test_fields_that_the_engine_does_not_use_are_known(version: str, kind: str, spec: dict[str, Any]) -> None:
    given = {"apiVersion": version, "kind": kind, "metadata": META, "spec": spec}
    assert list(unknown_fields(given)) == []


def test_every_example_is_without_unknown_fields_and_wrong_values() -> None:
    read = 0
    for path in sorted(EXAMPLES.rglob("*.yaml")):
        text = path.read_text()
        try:
            found = documents(text, path.name)
        except InputError:
            continue  # a fleet or a configuration
        read += len(found)
        assert [
            line for document in found for line in (*unknown(document), *chain.from_iterable(judged_values(document)))
        ] == []
    assert read > 50


QUEUE = """\
apiVersion: kueue.x-k8s.io/{version}
kind: ClusterQueue
metadata: {{name: cq}}
spec:
  namespaceSelector: {{}}
  {field}: team
"""


@pytest.mark.parametrize(
    ("version", "field", "expected"),
    [
        ("v1beta2", "cohortname", "cohortName"),
        ("v1beta2", "cohort", "cohortName"),
        ("v1beta1", "cohortName", "cohort"),
        ("v1beta2", "queueStrategy", "queueingStrategy"),
        ("v1beta2", "zzz", "one of "),
    ],
)
def test_a_misspelt_field_is_told_with_its_line_and_the_nearest_name(version: str, field: str, expected: str) -> None:
    (line,) = told(QUEUE.format(version=version, field=field))
    assert line.startswith(f"f.yaml:6: ClusterQueue cq: spec.{field}: found an unknown field, expected {expected}")


def test_among_dozens_of_names_none_of_which_is_near_their_number_is_told() -> None:
    (line,) = told("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  qqqqq: 1\n")
    assert re.search(r"expected one of the \d\d fields that the API has here$", line)


def test_lines_are_right_in_lists_later_documents_and_behind_merge_keys() -> None:
    assert [line.partition(":")[2].partition(":")[0] for line in told(NESTED)] == ["4", "13", "16"]


NESTED = """\
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: p}
worth: &shared {requests: {cpu: 1}, nothing: 1}
---
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Pod
  metadata: {name: p}
  specification: {}
- apiVersion: v1
  kind: Pod
  metadata: {<<: [{annotation: x}, {name: q}], labels: {app: q}}
"""


@pytest.mark.parametrize(
    "given",
    [
        {"metadata": META, "spec": 3},
        {"metadata": META, "spec": {"containers": {"name": "c"}}},
        {"metadata": META, "spec": {"containers": [[{"nam": "c"}]]}},
        {"metadata": META, "spec": None},
        {"metadata": "n"},
    ],
)
def test_values_of_another_shape_are_left_to_who_reads_them(given: dict[str, Any]) -> None:
    assert list(unknown_fields({"apiVersion": "v1", "kind": "Pod", **given})) == []


def test_a_kind_that_is_not_read_may_have_any_fields() -> None:
    assert list(unknown_fields({"apiVersion": "v1", "kind": "Secret", "metadata": {}, "anything": 1})) == []


def test_keys_that_are_no_text_are_unknown_and_no_crash() -> None:
    assert len(told("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\non: 1\n3: x\n")) == 2


def test_a_train_job_of_a_present_trainer_has_only_known_fields() -> None:
    pod: dict[str, Any] = {"nodeSelector": {"a": "b"}, "containers": [{"name": "n"}]}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod}
    jobs = [{"name": "node", "template": {"metadata": {"labels": {}}, "spec": {"template": template}}}]
    patch = {"template": {"metadata": {"labels": {"team": "blue"}}, "spec": {"replicatedJobs": jobs}}}
    source = {"storageUri": "s3://b/d", "env": [{"name": "A", "value": "1"}], "secretRef": {"name": "s"}}
    job: dict[str, Any] = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "t"},
        "spec": {
            "runtimeRef": {"name": "torch"},
            "activeDeadlineSeconds": 60,
            "initializer": {"dataset": source, "model": source},
            "runtimePatches": [{"manager": "a.example/b", "time": None, "trainingRuntimeSpec": patch}],
        },
        "status": {"trainerStatus": {"progressPercentage": 5}},
    }
    torch = {"numProcPerNode": "auto", "elasticPolicy": {"minNodes": 1}}
    runtime = {**job, "kind": "ClusterTrainingRuntime", "spec": {"mlPolicy": {"torch": torch}}}
    del runtime["status"]
    assert [*unknown_fields(job), *unknown_fields(runtime)] == []
    at = "spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0]."
    jobs[0]["templates"] = {}
    pod |= {"hostNetwork": True, "volumes": [{"name": "v", "emptyDir": {}}]}
    pod["containers"][0] |= {"resources": {}, "env": [{"name": "A", "value": "b"}]}
    assert {one.field.removeprefix(at) for one in unknown_fields(job)} == {
        "templates",
        "template.spec.template.spec.hostNetwork",
        "template.spec.template.spec.containers[0].resources",
    }
