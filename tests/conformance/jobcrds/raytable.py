"""The fields of RayClusters, RayJobs and RayServices; see ``fieldtable``."""

from typing import Any, Final

from controller.jobs.framework import names
from tests.conformance.jobcrds.fieldrows import (
    COUNT,
    MANAGED_BY,
    NETWORK,
    POD,
    RAY,
    RETRIES,
    RUNS,
    SMALL,
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

_AUTOSCALED: Final[dict[str, Any]] = {"enableInTreeAutoscaling": True}


def cluster_fields(at: str) -> Rows:
    return below(
        at,
        {
            "headGroupSpec.template": Served(by=TEMPLATE, tried=POD),
            "workerGroupSpecs[].template": Served(by=TEMPLATE, tried=POD),
            "workerGroupSpecs[].groupName": Served(by="the pod set's name", tried="other"),
            "workerGroupSpecs[].replicas": Served(by=COUNT, tried=5, beside={"workerGroupSpecs[].maxReplicas": 9}),
            "workerGroupSpecs[].minReplicas": Served(
                by="the least number of pods", tried=5, beside={"workerGroupSpecs[].maxReplicas": 9}
            ),
            "workerGroupSpecs[].maxReplicas": Served(by="the greatest number of pods", tried=1),
            "workerGroupSpecs[].numOfHosts": Served(by=COUNT, tried=5),
            "workerGroupSpecs[].suspend": Served(by="a group that is suspended itself has no pods", tried=True),
            "enableInTreeAutoscaling": Refused(
                sentence=f"{at}.enableInTreeAutoscaling: a queued job is autoscaled only as an elastic one: expected"
                f" annotation {names.ELASTIC_JOB}",
                tried=True,
            ),
            "autoscalerOptions.resources": Served(
                by="a container of the head", tried={"requests": {"cpu": "7"}}, beside=_AUTOSCALED
            ),
            "gcsFaultToleranceOptions.backend": Served(
                by="the least request of a head whose state is in Redis",
                tried="redis",
                beside={"headGroupSpec.template": SMALL},
            ),
            "historyServerOptions.collectorOptions.resources": Served(
                by="a container of every pod", tried={"requests": {"cpu": "7"}}
            ),
            **unrelated(
                {
                    NETWORK: "authOptions tlsOptions networkPolicy headServiceAnnotations headGroupSpec.enableIngress"
                    " headGroupSpec.headService headGroupSpec.ingressOptions headGroupSpec.serviceType",
                    RAY: "rayVersion headGroupSpec.labels headGroupSpec.rayStartParams headGroupSpec.resources"
                    " workerGroupSpecs[].labels workerGroupSpecs[].rayStartParams workerGroupSpecs[].resources",
                    RUNS: " ".join(
                        f"autoscalerOptions.{name}"
                        for name in ("args", "command", "env", "envFrom", "image", "imagePullPolicy", "securityContext")
                    )
                    + " historyServerOptions.collectorOptions.env historyServerOptions.collectorOptions.image"
                    " historyServerOptions.collectorOptions.imagePullPolicy",
                    STORAGE: "autoscalerOptions.volumeMounts gcsFaultToleranceOptions.storage"
                    " gcsFaultToleranceOptions.externalStorageNamespace gcsFaultToleranceOptions.redisAddress"
                    " gcsFaultToleranceOptions.redisPassword gcsFaultToleranceOptions.redisUsername",
                    "how Ray's autoscaler finds the counts, which are read from its cluster": (
                        "autoscalerOptions.idleTimeoutSeconds autoscalerOptions.upscalingMode autoscalerOptions.version"
                        " workerGroupSpecs[].idleTimeoutSeconds workerGroupSpecs[].priority"
                        " workerGroupSpecs[].scaleStrategy"
                    ),
                    "new pods take the place of those that are deleted": "upgradeStrategy",
                }
            ),
            "managedBy": MANAGED_BY,
            "suspend": SUSPEND,
        },
    )


_OF_ANOTHER: Final = "the RayJob's or RayService's is what counts"
RAY_JOB: Final[Rows] = {
    **cluster_fields("spec.rayClusterSpec"),
    **unrelated({_OF_ANOTHER: "spec.rayClusterSpec.managedBy spec.rayClusterSpec.suspend"}),
    **below(
        "spec",
        {
            "suspend": SUSPEND,
            "managedBy": MANAGED_BY,
            "submissionMode": Served(by="whether there is a pod set submitter", tried="HTTPMode"),
            "submitterPodTemplate": Served(by=TEMPLATE, tried=POD),
            "clusterSelector": Refused(
                sentence="spec.clusterSelector: a queued job runs on a cluster of its own: expected no clusterSelector",
                tried={"ray.io/cluster": "shared"},
            ),
            "rayClusterSpec": Refused(
                sentence="spec.rayClusterSpec: a queued job runs on a cluster of its own: expected its specification,"
                " found none",
                tried=None,
            ),
            "shutdownAfterJobFinishes": Refused(
                sentence="spec.shutdownAfterJobFinishes: a queued job gives its pods back when it has finished:"
                " expected true, found false",
                tried=False,
            ),
            **unrelated(
                {
                    RETRIES: "backoffLimit submitterConfig",
                    "the quota is held as long as the RayCluster is there": (
                        "activeDeadlineSeconds deletionStrategy preRunningDeadlineSeconds ttlSecondsAfterFinished"
                    ),
                    RAY: "entrypoint entrypointNumCpus entrypointNumGpus entrypointResources jobId metadata"
                    " runtimeEnvYAML",
                }
            ),
        },
    ),
}
_UPGRADE: Final = Told(page="kinds/ray.md", sentence="An upgrade of a RayService runs a second cluster")
RAY_SERVICE: Final[Rows] = {
    **cluster_fields("spec.rayClusterConfig"),
    **unrelated({_OF_ANOTHER: "spec.rayClusterConfig.managedBy"}),
    **below(
        "spec",
        {
            "suspend": Served(by="the service is on hold while its owner has set it", tried=True),
            "managedBy": MANAGED_BY,
            "upgradeStrategy": _UPGRADE,
            **unrelated(
                {
                    "when an old cluster goes after an upgrade": "rayClusterDeletionDelaySeconds",
                    RAY: "serveConfigV2 deploymentUnhealthySecondThreshold serviceUnhealthySecondThreshold",
                    NETWORK: "excludeHeadPodFromServeSvc serveService",
                }
            ),
        },
    ),
}
