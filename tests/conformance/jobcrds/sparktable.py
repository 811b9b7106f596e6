"""The fields of a SparkApplication; see ``fieldtable``."""

from typing import Any, Final

from tests.conformance.jobcrds.fieldrows import Refused, Rows, Served, below, unrelated

_REQUEST: Final = "the request of Spark's container"
_MOUNTED: Final = [{"name": "data", "mountPath": "/data"}]
_VOLUMES: Final = [{"name": "data", "emptyDir": {}}]
_RUNS: Final = "what runs in containers, and no part of a request"
_NETWORK: Final = "names, addresses and rights, and no pod"
_CONTAINER: Final = [{"name": "side", "image": "i", "resources": {"requests": {"cpu": "7"}}}]


def _role(name: str) -> Rows:
    copied: dict[str, Any] = {
        "labels": {"a": "b"},
        "annotations": {"kueue.x-k8s.io/podset-preferred-topology": "zone"},
        "nodeSelector": {"zone": "a"},
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "sidecars": _CONTAINER,
        "initContainers": _CONTAINER,
        "template": {"spec": {"containers": _CONTAINER}},
    }
    requests: dict[str, Any] = {
        "cores": 7,
        "coreRequest": "7",
        "coreLimit": "7",
        "memory": "7g",
        "memoryLimit": "7g",
        "memoryOverhead": "7g",
        "gpu": {"name": "example.dev/gpu", "quantity": 7},
    }
    return below(
        f"spec.{name}",
        {
            **{field: Served(by="the pod set's template", tried=value) for field, value in copied.items()},
            **{field: Served(by=_REQUEST, tried=value) for field, value in requests.items()},
            "priorityClassName": Served(by="the Workload's priority", tried="high"),
            **unrelated(
                {
                    _RUNS: "configMaps env envFrom envSecretKeyRefs envVars image javaOptions lifecycle ports"
                    " podSecurityContext secrets securityContext shareProcessNamespace terminationGracePeriodSeconds",
                    _NETWORK: "dnsConfig hostAliases hostNetwork serviceAccount",
                    "the scheduler that binds the pods when they have their quota": "schedulerName",
                }
            ),
        },
    )


SPARK_APPLICATION: Final[Rows] = {
    **_role("driver"),
    **_role("executor"),
    **below(
        "spec",
        {
            "driver.volumeMounts": Served(by="volumes of the pods", tried=_MOUNTED, beside={"volumes": _VOLUMES}),
            "executor.volumeMounts": Served(by="volumes of the pods", tried=_MOUNTED, beside={"volumes": _VOLUMES}),
            "volumes": Served(by="volumes of the pods", tried=_VOLUMES, beside={"driver.volumeMounts": _MOUNTED}),
            "executor.instances": Served(by="the number of pods that are charged", tried=5),
            "nodeSelector": Served(by="the pod set's template", tried={"zone": "a"}),
            "memoryOverheadFactor": Served(by=_REQUEST, tried="7", beside={"executor.memory": "9g"}),
            "sparkConf": Served(by=_REQUEST, tried={"spark.driver.memoryOverhead": "7g"}),
            "type": Served(by=_REQUEST, tried="Scala", beside={"executor.memory": "9g"}),
            "suspend": Served(by="a start clears it, a stop sets it", tried=False),
            "mode": Refused(
                sentence="spec.mode: a queued application runs its driver in the cluster: expected 'cluster', found"
                " 'client'",
                tried="client",
            ),
            "restartPolicy.type": Refused(
                sentence="spec.restartPolicy.type: a queued application comes to an end: expected 'Never' or"
                " 'OnFailure', found 'Always'",
                tried="Always",
            ),
            "dynamicAllocation.enabled": Refused(
                sentence="spec.dynamicAllocation.enabled: a queued application keeps the number of its executors:"
                " expected false, found true",
                tried=True,
            ),
            **unrelated(
                {
                    "read only where executors come and go, which is refused": "dynamicAllocation.initialExecutors"
                    " dynamicAllocation.maxExecutors dynamicAllocation.minExecutors"
                    " dynamicAllocation.shuffleTrackingEnabled dynamicAllocation.shuffleTrackingTimeout",
                    "the scheduler that binds the pods when they have their quota": "batchScheduler"
                    " batchSchedulerOptions",
                    "a rerun keeps the quota": "failureRetries retryInterval restartPolicy.onFailureRetries"
                    " restartPolicy.onFailureRetryInterval restartPolicy.onSubmissionFailureRetries"
                    " restartPolicy.onSubmissionFailureRetryInterval",
                    "after the end": "timeToLiveSeconds executor.deleteOnTermination",
                    _RUNS: "arguments deps hadoopConf hadoopConfigMap image imagePullPolicy imagePullSecrets"
                    " mainApplicationFile mainClass monitoring proxyUser pythonVersion sparkConfigMap sparkVersion",
                    _NETWORK: "driver.kubernetesMaster driver.podName driver.serviceAnnotations driver.serviceLabels"
                    " driverIngressOptions driverPodDisruptionBudget sparkUIOptions",
                }
            ),
        },
    ),
}
