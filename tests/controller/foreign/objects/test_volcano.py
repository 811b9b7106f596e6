from typing import Any

from controller.foreign.objects.volcanogroup import GROUP_VERSION, PodGroup
from controller.foreign.objects.volcanojob import COMMAND_VERSION, JOB_VERSION, VolcanoCommand, VolcanoJob
from controller.objects.decode import decode
from controller.objects.meta import OwnerReference, to_json

TEMPLATE = {"spec": {"containers": [{"name": "c", "image": "i", "somethingNew": {"kept": [1]}}]}}
JOB: dict[str, Any] = {
    "apiVersion": JOB_VERSION,
    "kind": "Job",
    "metadata": {"name": "train", "namespace": "team"},
    "spec": {
        "minAvailable": 3,
        "queue": "research",
        "plugins": {"svc": ["--publish-not-ready-addresses=true"], "env": []},
        "policies": [{"events": ["PodEvicted", "PodFailed"], "action": "RestartJob", "timeout": "10s"}],
        "volumes": [{"mountPath": "/data", "volumeClaim": {"accessModes": ["ReadWriteOnce"]}}],
        "tasks": [
            {
                "name": "master",
                "replicas": 1,
                "template": TEMPLATE,
                "policies": [{"exitCode": 3, "action": "AbortJob"}],
            },
            {
                "name": "worker",
                "replicas": 4,
                "minAvailable": 2,
                "maxRetry": 5,
                "template": TEMPLATE,
                "dependsOn": {"name": ["master"], "iteration": "any"},
                "partitionPolicy": {"totalPartitions": 2, "partitionSize": 2},
            },
        ],
    },
    "status": {
        "state": {"phase": "Running"},
        "taskStatusCount": {"worker": {"phase": {"Running": 4}}},
        "conditions": [{"status": "Running", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    },
}


def test_a_volcano_job_is_read_and_written_with_nothing_lost() -> None:
    job = decode(JOB, VolcanoJob)
    assert to_json(job) == JOB
    worker = job.spec.tasks[1]
    assert worker.template == TEMPLATE
    assert worker.partition_policy is not None
    assert worker.partition_policy.partition_size == 2
    assert job.status.task_status_count["worker"].phase == {"Running": 4}


def test_a_pod_group_is_read_and_written_with_nothing_lost() -> None:
    group = {
        "apiVersion": GROUP_VERSION,
        "kind": "PodGroup",
        "metadata": {"name": "train-1", "namespace": "team"},
        "spec": {
            "minMember": 3,
            "minTaskMember": {"worker": 2},
            "minResources": {"cpu": "3"},
            "queue": "research",
            "subGroupPolicy": [{"name": "rack", "matchLabelKeys": ["volcano.sh/partition-id"], "subGroupSize": 2}],
        },
        "status": {"phase": "Inqueue", "conditions": [{"type": "Scheduled", "status": "True", "transitionID": "7"}]},
    }
    assert to_json(decode(group, PodGroup)) == group


def test_a_command_says_what_is_ordered_of_which_job() -> None:
    command = decode(
        {
            "apiVersion": COMMAND_VERSION,
            "kind": "Command",
            "metadata": {"name": "stop", "namespace": "team"},
            "action": "AbortJob",
            "target": {"apiVersion": JOB_VERSION, "kind": "Job", "name": "train", "uid": "u1"},
        },
        VolcanoCommand,
    )
    assert command.action == "AbortJob"
    assert command.target == OwnerReference(api_version=JOB_VERSION, kind="Job", name="train", uid="u1")
