"""Gates that earlier versions of Kueue had: accepted, and without effect whatever they are set to.

Source: the lists of removed and graduated gates in Kueue's documentation, 0.4 to 0.20.
"""

from collections.abc import Mapping
from typing import Final

_ON, _OFF = "always on", "gone"

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
"""Name -> what holds in its place."""
