"""Feature gates: Kueue's names and defaults, which its configuration file may override.

Every gate of Kueue is known here, so that a configuration that sets one is accepted; the engine reads those that change
a decision with ``gates.on(name)``.
"""

from collections.abc import Mapping
from typing import Final

DEFAULTS: Final[Mapping[str, bool]] = {
    "AdmissionFairSharing": True,
    "AdmissionGatedBy": True,
    "AssignQueueLabelsForPods": True,
    "CleanupProvisioningRequestsOnEviction": True,
    "ConcurrentAdmission": False,
    "CustomMetricLabels": False,
    "DeferRayServiceFinalizationForRedisCleanup": True,
    "DisableWaitForPodsReady": False,
    "ElasticJobsViaWorkloadSlices": True,
    "ElasticJobsViaWorkloadSlicesWithTAS": False,
    "FailureRecoveryPolicy": False,
    "FairSharingPreemptWithinNominal": True,
    "FairSharingPrioritizeNonBorrowing": True,
    "FastQuotaReleaseInPodIntegration": False,
    "FinishOrphanedWorkloads": True,
    "FlavorFungibility": True,
    "FlavorFungibilityPreserveScanProgress": True,
    "KueueDRAIntegration": True,
    "KueueDRAIntegrationConsumableCapacity": False,
    "KueueDRAIntegrationExtendedResource": True,
    "KueueDRAIntegrationPartitionableDevices": True,
    "KueueDRARejectWorkloadsWhenDRADisabled": True,
    "LWSImmutableGroupSize": True,
    "LocalQueueMetrics": True,
    "ManagedJobsNamespaceSelectorAlwaysRespected": True,
    "MetricForWorkloadCreationLatency": True,
    "MetricsForCohorts": True,
    "MultiKueue": True,
    "MultiKueueAdaptersForCustomJobs": True,
    "MultiKueueClusterProfile": False,
    "MultiKueueIncrementalDispatcherConfig": True,
    "MultiKueueIncrementalDispatcherRespectConfigOrder": True,
    "MultiKueueKubeConfigPathValidation": True,
    "MultiKueueManagerQuotaAutomation": False,
    "MultiKueueOrchestratedPreemption": False,
    "MultiKueueRemoteSpecSync": True,
    "PartialAdmission": True,
    "PodIntegrationValidateGroupOwner": True,
    "PrioritizePreemptorWorkloads": False,
    "PriorityBoost": False,
    "PrioritySortingWithinCohort": True,
    "QuotaCheckStrategy": True,
    "ReclaimablePods": True,
    "RecomputeAssignmentUponPreemptionTargetsOverlap": True,
    "RejectUpdatesToCQWithInvalidOnFlavors": False,
    "RemoveFinalizersWithStrictPatch": True,
    "SchedulerLibraryIntegration": False,
    "SchedulingEquivalenceHashing": True,
    "ShortWorkloadNames": False,
    "SkipAncestorCheckForDeletedWorkloads": True,
    "SkipReassignmentForPodOwnedWorkloads": True,
    "SparkApplicationIntegration": False,
    "TASAssignmentsEncodingByHostnamePrefix": True,
    "TASBalancedPlacement": False,
    "TASCacheNodeMatchResults": True,
    "TASCacheTopologyTree": True,
    "TASCachingRemainingResources": True,
    "TASFailedNodeReplacement": True,
    "TASFailedNodeReplacementFailFast": True,
    "TASHandleOverlappingFlavors": True,
    "TASMultiLayerTopology": True,
    "TASProfileMixed": True,
    "TASRecomputeAssignmentWithinSchedulingCycle": True,
    "TASReplaceNodeDueToNotReadyOverFixedTime": False,
    "TASReplaceNodeOnNodeTaints": True,
    "TASReplaceNodeOnPodTermination": True,
    "TASRespectNodeAffinityPreferred": False,
    "TASValidateWorkloadSliceSize": True,
    "TLSOptions": True,
    "TopologyAwareScheduling": True,
    "UnadmittedWorkloadsExplicitStatus": False,
    "UnadmittedWorkloadsObservability": True,
    "ValidateRayAndSparkJobUpdates": True,
    "VectorizedResourceRequests": True,
    "VisibilityOnDemand": True,
    "WorkloadIdentifierAnnotations": True,
    "WorkloadPriorityClassDefaulting": True,
    "WorkloadRequestUseMergePatch": False,
    "WorkloadValidateResourcesAreNonNegative": True,
    "WorkloadValidationForPodSetMetadata": True,
}


class UnknownGateError(ValueError):
    """The name is no gate of any version of Kueue: most likely a misspelling in the configuration."""


class FeatureGates:
    """An immutable set of gates: ``overrides`` on top of the defaults."""

    def __init__(self, overrides: Mapping[str, bool] | None = None) -> None:
        switched = overrides or {}
        unknown = sorted(switched.keys() - DEFAULTS.keys())
        if unknown:
            raise UnknownGateError(f"featureGates.{unknown[0]}: no such gate")
        self._values = {**DEFAULTS, **switched}

    def on(self, gate: str) -> bool:
        try:
            return self._values[gate]
        except KeyError:
            raise UnknownGateError(f"featureGates.{gate}: no such gate") from None
