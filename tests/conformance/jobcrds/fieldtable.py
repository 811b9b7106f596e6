"""Every field of every kind's CRD: served by what, refused with which sentence, or without bearing on scheduling.

Paths are those of ``kindcrds.below``. Pod templates stand for themselves.
"""

from typing import Final

from tests.conformance.jobcrds.fieldrows import (
    AFTER,
    COUNT,
    MANAGED_BY,
    NETWORK,
    OTHERS,
    POD,
    RETRIES,
    RUNS,
    SMALL,
    SMALLER,
    STORAGE,
    SUSPEND,
    TEMPLATE,
    Refused,
    Rows,
    Served,
    Told,
    below,
    unrelated,
)
from tests.conformance.jobcrds.raytable import RAY_JOB, RAY_SERVICE, cluster_fields
from tests.conformance.jobcrds.sparktable import SPARK_APPLICATION

# -- Kubeflow's, and the MPI operator's

_RUN_POLICY: Final[Rows] = below(
    "spec.runPolicy",
    {
        "suspend": SUSPEND,
        "managedBy": MANAGED_BY,
        "schedulingPolicy.priorityClass": Served(by="the Workload's priority", tried="high"),
        "schedulingPolicy.minAvailable": SMALLER,
        "cleanPodPolicy": Told(page="kinds/kubeflow.md", sentence="`None`, the default of both operators"),
        **unrelated(
            {
                RETRIES: "backoffLimit",
                AFTER: "activeDeadlineSeconds ttlSecondsAfterFinished",
                OTHERS: "schedulingPolicy.minResources schedulingPolicy.queue schedulingPolicy.scheduleTimeoutSeconds",
            }
        ),
    },
)
_WITHOUT_MANAGED_BY: Final = {path: row for path, row in _RUN_POLICY.items() if not path.endswith(".managedBy")}


def _replicas(field: str) -> Rows:
    return below(
        f"spec.{field}{{}}",
        {
            "replicas": Served(by=COUNT, tried=5),
            "template": Served(by=TEMPLATE, tried=POD),
            **unrelated({RETRIES: "restartPolicy"}),
        },
    )


_ELASTIC: Final[Rows] = below(
    "spec.elasticPolicy",
    {
        "minReplicas": SMALLER,
        **dict.fromkeys(
            ("maxReplicas", "metrics"),
            Told(page="kinds/kubeflow.md", sentence="Any other is stopped and queued anew with each change"),
        ),
        **unrelated({RETRIES: "maxRestarts"}),
    },
)
_TORCH: Final = unrelated(
    {
        RUNS: "spec.nprocPerNode "
        + " ".join(
            f"spec.elasticPolicy.{name}"
            for name in ("nProcPerNode", "rdzvBackend", "rdzvConf", "rdzvHost", "rdzvId", "rdzvPort", "standalone")
        )
    }
)
_TENSORFLOW: Final = unrelated(
    {
        "lets workers come and go under one configuration of TensorFlow, the counts are the object's": (
            "spec.enableDynamicWorker"
        ),
        AFTER: "spec.successPolicy",
    }
)
_MPI: Final[Rows] = {
    "spec.runLauncherAsWorker": Served(by="ranks of workers begin at 1", tried=True),
    **unrelated(
        {
            "the launcher is charged from the beginning": "spec.launcherCreationPolicy",
            RUNS: "spec.mpiImplementation spec.slotsPerWorker",
            STORAGE: "spec.sshAuthMountPath",
        }
    ),
}

# -- JobSet and TrainJob

_JOB_SET: Final[Rows] = {
    "suspend": SUSPEND,
    "managedBy": MANAGED_BY,
    "failurePolicy.maxRestarts": Served(by="pods of succeeded jobs are given back where none is left", tried=3),
    "failurePolicy.rules[].action": Served(
        by="pods of succeeded jobs are not given back where restarts have no end",
        tried="RestartJobSetAndIgnoreMaxRestarts",
    ),
    "replicatedJobs[].name": Served(by="the pod set's name", tried="other"),
    "replicatedJobs[].replicas": Served(by=COUNT, tried=5),
    "replicatedJobs[].template.spec.parallelism": Served(
        by=COUNT, tried=5, beside={"replicatedJobs[].template.spec.completions": 5}
    ),
    "replicatedJobs[].template.spec.completions": Served(
        by=COUNT, tried=2, beside={"replicatedJobs[].template.spec.parallelism": 5}
    ),
    "replicatedJobs[].template.spec.template": Served(by=TEMPLATE, tried=SMALL),
    **unrelated(
        {
            "jobs that come later are charged from the beginning": (
                "replicatedJobs[].dependsOn startupPolicy.startupPolicyOrder"
            ),
            RETRIES: "failurePolicy.restartStrategy failurePolicy.rules[].name"
            " failurePolicy.rules[].onJobFailureReasons failurePolicy.rules[].onJobFailureMessagePatterns"
            " failurePolicy.rules[].targetReplicatedJobs"
            " replicatedJobs[].template.spec.backoffLimit replicatedJobs[].template.spec.backoffLimitPerIndex"
            " replicatedJobs[].template.spec.maxFailedIndexes replicatedJobs[].template.spec.podFailurePolicy"
            " replicatedJobs[].template.spec.podReplacementPolicy",
            AFTER: "ttlSecondsAfterFinished successPolicy replicatedJobs[].template.spec.successPolicy"
            " replicatedJobs[].template.spec.ttlSecondsAfterFinished"
            " replicatedJobs[].template.spec.activeDeadlineSeconds",
            NETWORK: "network coordinator",
            STORAGE: "volumeClaimPolicies",
            "names and marks of the Jobs, which belong to the JobSet's Workload": (
                "replicatedJobs[].groupName replicatedJobs[].template.metadata"
                " replicatedJobs[].template.spec.selector replicatedJobs[].template.spec.manualSelector"
            ),
            "how pods are numbered": "replicatedJobs[].template.spec.completionMode",
            "the JobSet's controller writes it": "replicatedJobs[].template.spec.suspend",
            "another controller's Jobs are charged as well": "replicatedJobs[].template.spec.managedBy",
        }
    ),
}

_NAMES_A_RUNTIME: Final = "the runtime whose JobSet is charged"
_TRAIN_JOB: Final[Rows] = below(
    "spec",
    {
        "suspend": SUSPEND,
        "managedBy": MANAGED_BY,
        "runtimeRef.name": Served(by=_NAMES_A_RUNTIME, tried="another"),
        "runtimeRef.kind": Served(by=_NAMES_A_RUNTIME, tried="TrainingRuntime"),
        "runtimeRef.apiGroup": Served(by=_NAMES_A_RUNTIME, tried="example.dev"),
        "trainer.numNodes": Served(by=COUNT, tried=5),
        "trainer.resourcesPerNode.requests": Served(by="requests of the container node", tried={"cpu": "7"}),
        "trainer.resourcesPerNode.limits": Served(by="requests of the container node", tried={"cpu": "7"}),
        "podSpecOverrides": Refused(
            sentence="spec.podSpecOverrides: an older trainer's, which cannot be started with labels and gates:"
            " write spec.runtimePatches",
            tried=[{"targetJobs": [{"name": "node"}]}],
        ),
        **unrelated(
            {
                RUNS: "trainer.args trainer.command trainer.env trainer.image trainer.numProcPerNode"
                " datasetConfig modelConfig",
                "the trainer takes requests and limits alone": "trainer.resourcesPerNode.claims",
                "marks of the JobSet and its Jobs, which belong to the TrainJob's Workload": "annotations labels",
            }
        ),
    },
)
_OF_RUNTIME: Final = "template.spec.replicatedJobs[].template.spec"
_RUNTIME: Final[Rows] = below(
    "spec",
    {
        **below("template.spec", _JOB_SET),
        "mlPolicy.numNodes": Served(by=COUNT, tried=5),
        "mlPolicy.mpi.runLauncherAsNode": Served(by="the launcher is one of the nodes", tried=True),
        **unrelated(
            {
                RUNS: "mlPolicy.flux mlPolicy.jax mlPolicy.torch mlPolicy.xgboost"
                " mlPolicy.mpi.mpiImplementation mlPolicy.mpi.numProcPerNode mlPolicy.mpi.sshAuthMountPath",
                OTHERS: "podGroupPolicy",
                "marks of the JobSet, which belongs to the TrainJob's Workload": "template.metadata",
                "the TrainJob's is what counts": "template.spec.suspend template.spec.managedBy",
                "a job of a TrainJob has as many completions as pods": f"{_OF_RUNTIME}.completions",
            }
        ),
    },
)

# -- AppWrapper and LeaderWorkerSet

_INFOS: Final = "a start writes it, a stop takes it away"
_APP_WRAPPER: Final[Rows] = {
    "spec.suspend": SUSPEND,
    "spec.managedBy": MANAGED_BY,
    **below(
        "spec.components[]",
        {
            "template": Served(by="its pods are the pod sets", tried={"spec": {"pods": POD}}),
            "podSets[].path": Served(by="where the pod template is", tried="template.spec.others"),
            "podSets[].replicas": Served(by=COUNT, tried=5),
            "podSets[].annotations": Served(
                by="the label with a pod's rank",
                tried={"workload.codeflare.dev.appwrapper/tas-pod-index-label": "example.dev/rank"},
            ),
            "podSetInfos": Served(by=_INFOS, tried=[{"nodeSelector": {"zone": "a"}}]),
            **unrelated({"for users; the AppWrapper's controller reads none of a component": "annotations"}),
        },
    ),
}
_LEADER_WORKER_SET: Final[Rows] = below(
    "spec",
    {
        "replicas": Served(by="the number of Workloads", tried=5),
        "leaderWorkerTemplate.size": Served(by=COUNT, tried=5),
        "leaderWorkerTemplate.leaderTemplate": Served(by=TEMPLATE, tried=POD),
        "leaderWorkerTemplate.workerTemplate": Served(by=TEMPLATE, tried=POD),
        "rolloutStrategy.rollingUpdateConfiguration.maxSurge": Served(
            by="a rollout has as many Workloads as groups", tried=1
        ),
        **unrelated(
            {
                "a group keeps its Workload while its pods are replaced": "rolloutStrategy.type"
                " rolloutStrategy.rollingUpdateConfiguration.maxUnavailable"
                " rolloutStrategy.rollingUpdateConfiguration.partition leaderWorkerTemplate.restartPolicy",
                "a group is charged by its declared size": "startupPolicy",
                "marks of pods; the set's annotation asks for domains": "leaderWorkerTemplate.subGroupPolicy",
                NETWORK: "networkConfig",
                STORAGE: "leaderWorkerTemplate.persistentVolumeClaimRetentionPolicy"
                " leaderWorkerTemplate.volumeClaimTemplates",
            }
        ),
    },
)

FIELDS: Final[dict[str, Rows]] = {
    "PyTorchJob": {**_RUN_POLICY, **_replicas("pytorchReplicaSpecs"), **_ELASTIC, **_TORCH},
    "TFJob": {**_RUN_POLICY, **_replicas("tfReplicaSpecs"), **_TENSORFLOW},
    "XGBoostJob": {**_WITHOUT_MANAGED_BY, **_replicas("xgbReplicaSpecs")},
    "PaddleJob": {**_WITHOUT_MANAGED_BY, **_replicas("paddleReplicaSpecs"), **_ELASTIC},
    "JAXJob": {**_WITHOUT_MANAGED_BY, **_replicas("jaxReplicaSpecs")},
    "MPIJob": {**_RUN_POLICY, **_replicas("mpiReplicaSpecs"), **_MPI},
    "JobSet": below("spec", _JOB_SET),
    "TrainJob": _TRAIN_JOB,
    "ClusterTrainingRuntime": _RUNTIME,
    "TrainingRuntime": _RUNTIME,
    "RayCluster": cluster_fields("spec"),
    "RayJob": RAY_JOB,
    "RayService": RAY_SERVICE,
    "AppWrapper": _APP_WRAPPER,
    "LeaderWorkerSet": _LEADER_WORKER_SET,
    "SparkApplication": SPARK_APPLICATION,
}
