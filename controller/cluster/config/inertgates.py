"""Gates of Kueue that may be set and change nothing: ``IDLE`` are present gates, ``GONE`` are former ones.

A setting of an idle gate that differs from what holds here gets a warning. A test finds the gates that the code reads:
each gate is in one of these tables or read, never both. Source of ``GONE``: the lists of removed and graduated gates in
Kueue's documentation, 0.4 to 0.20.
"""

from collections.abc import Mapping
from typing import Final

_NO_MULTIKUEUE: Final = "there is no MultiKueue yet"
_SAME: Final = "how Kueue computes: decisions are the same"

IDLE: Final[Mapping[str, str]] = {
    "CustomMetricLabels": "series carry no labels of objects",
    "DeferRayServiceFinalizationForRedisCleanup": "a RayService holds its quota until its clusters are gone",
    "ManagedJobsNamespaceSelectorAlwaysRespected": "managedJobsNamespaceSelector always counts",
    "MultiKueue": _NO_MULTIKUEUE,
    "MultiKueueAdaptersForCustomJobs": _NO_MULTIKUEUE,
    "MultiKueueClusterProfile": _NO_MULTIKUEUE,
    "MultiKueueIncrementalDispatcherConfig": _NO_MULTIKUEUE,
    "MultiKueueIncrementalDispatcherRespectConfigOrder": _NO_MULTIKUEUE,
    "MultiKueueKubeConfigPathValidation": _NO_MULTIKUEUE,
    "MultiKueueManagerQuotaAutomation": _NO_MULTIKUEUE,
    "MultiKueueRemoteSpecSync": _NO_MULTIKUEUE,
    "PodIntegrationValidateGroupOwner": "who owns the pods of a group is not asked",
    "RejectUpdatesToCQWithInvalidOnFlavors": "a check may go on naming a flavor that went, and name no other stranger",
    "RemoveFinalizersWithStrictPatch": "a finalizer is always removed from the version that was read",
    "SchedulerLibraryIntegration": "nodes are judged by their labels, taints and room either way",
    "SkipAncestorCheckForDeletedWorkloads": "how Kueue looks for the owners of a job",
    "SparkApplicationIntegration": "SparkApplications are queued where their CRD is installed",
    "TASCacheNodeMatchResults": _SAME,
    "TASCacheTopologyTree": _SAME,
    "TASCachingRemainingResources": _SAME,
    "TASValidateWorkloadSliceSize": "a slice larger than its pod set is always refused",
    "TLSOptions": "the section tls always counts",
    "VectorizedResourceRequests": _SAME,
    "VisibilityOnDemand": "the visibility API is always served: the chart's `controller.visibility` says where",
    "WorkloadRequestUseMergePatch": "what is written does not depend on how",
    "WorkloadValidateResourcesAreNonNegative": "a negative request is always refused",
    "WorkloadValidationForPodSetMetadata": "what labels and annotations a template may have the schema says",
}
"""What holds whatever a gate is set to, by its name."""

_ON: Final = "always on"
_OFF: Final = "gone"

GONE: Final[Mapping[str, str]] = {
    "AdmissionCheckValidationRules": _OFF,
    "ConfigurableResourceTransformations": _ON,
    "DynamicResourceAllocation": "its successor is KueueDRAIntegration",
    "ExposeFlavorsInLocalQueue": _OFF,
    "FlavorFungibilityImplicitPreferenceDefault": "its successor is flavorFungibility.preference of a ClusterQueue",
    "HierarchicalCohort": _ON,
    "HierarchicalCohorts": _ON,
    "KeepQuotaForProvReqRetry": _OFF,
    "LendingLimit": _ON,
    "LocalQueueDefaulting": _ON,
    "ManagedJobsNamespaceSelector": _ON,
    "MultiKueueAllowInsecureKubeconfigs": _OFF,
    "MultiKueueBatchJobWithManagedBy": _ON,
    "MultiplePreemptions": _ON,
    "ObjectRetentionPolicies": _ON,
    "PropagateBatchJobLabelsToWorkload": _ON,
    "ProvisioningACC": _ON,
    "QueueVisibility": _OFF,
    "SanitizePodSets": _ON,
    "SchedulerLongRequeueInterval": _OFF,
    "SchedulerTimestampPreemptionBuffer": _OFF,
    "SkipFinalizersForPodsSuspendedByParent": _ON,
    "TASProfileLeastFreeCapacity": _OFF,
    "TASProfileMostFreeCapacity": _OFF,
    "TASSkipRecentlyFailedFlavors": _OFF,
    "WorkloadResourceRequestsSummary": _ON,
}
"""Names of former gates, and what holds in their place."""
