"""The parts of the configuration that the engine decides by: Kueue's sections and Tessera's, as ``EngineConfig``."""

import difflib
from typing import Final

from controller.cluster.config.deviceclasses import OTHER_THAN_PODS, check_counted, claim_rules
from controller.cluster.config.inertgates import GONE, IDLE
from controller.cluster.config.queueusage import queue_usage
from controller.cluster.config.reader import Found
from controller.cluster.config.settings import Policy
from controller.objects.quantity import Quantity
from controller.scheduler.model.config import (
    BOTH_STRATEGIES,
    MAX_GRACE_S,
    AdmissionFairSharing,
    BackfillPolicy,
    Consolidation,
    EngineConfig,
    Extensions,
    FairSharing,
    InterruptionRules,
    MinimumRuntime,
    QuotaCheckStrategy,
    VictimOrder,
    WaitForPodsReady,
)
from controller.scheduler.model.gates import DEFAULTS, FeatureGates
from controller.scheduler.model.honestunits import HonestUnits
from controller.scheduler.model.podrequests import RequestRules, Transformation
from controller.scheduler.model.resources import PODS, ResourceName
from yamlfile import Place

HALF_LIFE_S: Final = 168 * 3600.0
"""The half-life of past use: a week. Kueue's default of 0 s keeps no history, so that the feature has no effect."""
SAMPLING_INTERVAL_S: Final = 300.0
READY_TIMEOUT_S: Final = 1800.0
_GIB: Final = 1 << 30
READY_TIMEOUT_V1BETA1_S: Final = 300.0


def engine_config(found: Found, policy: Policy, *, newest: bool) -> EngineConfig:
    """The engine's configuration. ``newest``: the file is v1beta2, or there is none. Raises ConfigError."""
    gates = _gates(found)
    strategy = QuotaCheckStrategy.BLOCK_UNDECLARED
    if gates.on("QuotaCheckStrategy"):
        strategy = found.get("resources.quotaCheckStrategy", strategy)
    return EngineConfig(
        gates=gates,
        fair_sharing=_fair_sharing(found, newest=newest),
        admission_fair_sharing=_admission_fair_sharing(found) if gates.on("AdmissionFairSharing") else None,
        queue_usage=queue_usage(found),
        wait_for_pods_ready=None if gates.on("DisableWaitForPodsReady") else _pods_ready(found, newest=newest),
        quota_check_strategy=strategy,
        request_rules=_request_rules(found),
        claim_rules=claim_rules(found, policy, gates),
        extensions=extensions_of(found, policy),
    )


def _gates(found: Found) -> FeatureGates:
    gates = {}
    for name, on in found.entries("featureGates").items():
        place = found.places[f"featureGates.{name}"]
        if name in GONE:
            found.note(place, f"no gate of this version of Kueue ({GONE[name]})")
        elif name in DEFAULTS:
            gates[name] = on
            if name in IDLE and on != DEFAULTS[name]:
                found.note(place, IDLE[name])
        else:
            near = difflib.get_close_matches(name[:60], [*DEFAULTS, *GONE], n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise place.error("a feature gate of Kueue", f"an unknown gate{hint}")
    return FeatureGates(gates)


def _fair_sharing(found: Found, *, newest: bool) -> FairSharing | None:
    if "fairSharing" not in found or not found.get("fairSharing.enable", newest):
        return None
    path = "fairSharing.preemptionStrategies"
    strategies = found.values(path)
    if not strategies:
        return FairSharing()
    if strategies not in (BOTH_STRATEGIES, *((strategy,) for strategy in BOTH_STRATEGIES)):
        first, second = BOTH_STRATEGIES
        raise found.places[path].error(
            f"[{first}], [{second}] or [{first}, {second}]", f"[{', '.join(strategies[:8])}]"
        )
    return FairSharing(strategies=strategies)


def _admission_fair_sharing(found: Found) -> AdmissionFairSharing | None:
    section = "admissionFairSharing"
    if section not in found:
        return None
    return AdmissionFairSharing(
        half_life_s=found.get(f"{section}.usageHalfLifeTime", HALF_LIFE_S),
        sampling_interval_s=found.get(f"{section}.usageSamplingInterval") or SAMPLING_INTERVAL_S,
        resource_weights={
            ResourceName(name): weight for name, weight in found.entries(f"{section}.resourceWeights").items()
        },
    )


def _pods_ready(found: Found, *, newest: bool) -> WaitForPodsReady | None:
    """The rules about pods' readiness: on by default in v1beta2; in v1beta1 only with ``enable``, and with that
    version's defaults.
    """
    section = "waitForPodsReady"
    if not newest and not found.get(f"{section}.enable", False):
        return None
    default_s = READY_TIMEOUT_S if newest else READY_TIMEOUT_V1BETA1_S
    timeout_s = found.get(f"{section}.timeout") or default_s
    recovery_s = found.get(f"{section}.recoveryTimeout", timeout_s if newest else None)
    requeuing = f"{section}.requeuingStrategy"
    return WaitForPodsReady(
        timeout_s=timeout_s,
        recovery_timeout_s=recovery_s or None,
        block_admission=found.get(f"{section}.blockAdmission", not newest),
        requeue_by_eviction=found.get(f"{requeuing}.timestamp", "Eviction") == "Eviction",
        backoff_limit_count=found.get(f"{requeuing}.backoffLimitCount"),
        backoff_base_s=float(found.get(f"{requeuing}.backoffBaseSeconds", 60)),
        backoff_max_s=float(found.get(f"{requeuing}.backoffMaxSeconds", 3600)),
    )


def _request_rules(found: Found) -> RequestRules:
    rules: dict[str, Transformation] = {}
    for path in found.items("resources.transformations"):
        name = found.required(path, "input")
        if name in rules:
            raise found.places[f"{path}.input"].error("each input once", f"{name} twice")
        factor, outputs = found.get(f"{path}.multiplyBy", ""), found.entries(f"{path}.outputs")
        for key in ("input", "multiplyBy"):
            check_counted(found, f"{path}.{key}")
        if PODS in outputs:
            raise found.places[f"{path}.outputs.{PODS}"].error(OTHER_THAN_PODS, PODS)
        rules[name] = Transformation(
            input=name,
            strategy=found.get(f"{path}.strategy", "Retain"),
            multiply_by=factor,
            outputs=outputs,
        )
    return RequestRules(
        exclude_prefixes=found.values("resources.excludeResourcePrefixes"),
        transformations=rules.values(),
        units=_honest_units(found),
    )


def _honest_units(found: Found) -> HonestUnits | None:
    """The units of GPUs; None without the section: a unit's worth cannot be guessed."""
    section = "tessera.honestUnits"
    if section not in found:
        return None
    memory: Quantity = found.required(section, "gpuMemory")
    return HonestUnits(
        memory_gib=memory.fraction / _GIB,
        compute_slices=found.get(f"{section}.computeSlices", 7),
        shared_replicas=found.get(f"{section}.sharedReplicas", 1),
    )


def extensions_of(found: Found, policy: Policy) -> Extensions:
    """The features beyond Kueue: each as its key says, else on under ``tessera`` and off under ``kueue``."""
    on = policy is Policy.TESSERA
    return Extensions(
        reserve_for_preemptor=found.get("tessera.reserveForPreemptor", on),
        no_eviction_cycles=found.get("tessera.noEvictionCycles", on),
        minimum_runtime=_minimum_runtime(found, on=on),
        backfill=found.get("tessera.backfill", BackfillPolicy.CONSERVATIVE if on else BackfillPolicy.NONE),
        victim_order=found.get("tessera.victimOrder", VictimOrder.LEAST_LOST if on else VictimOrder.NEWEST),
        keep_linked_gpus=found.get("tessera.keepLinkedGpus", on),
        empty_nodes=found.get("tessera.packing.emptyNodes", 0.0),
        quota_from_capacity=found.get("tessera.quotaFromCapacity", on),
        consolidation=_consolidation(found, on=on),
        takeovers_first=on,
        limits_before_defaults=on,
        whole_searches=on,
        requests_withdrawn=on,
        own_places=on,
        leaving_nodes=on,
        leaving_taints=frozenset(found.values("tessera.leavingTaints")),
        interruptions=_interruptions(found) if on else None,
        coming_nodes=on,
        spot_words=on,
        max_grace_s=found.get("tessera.spot.maxGrace", MAX_GRACE_S),
        spot_labels=tuple(found.entries("tessera.spotLabels").items()),
        priced_flavors=on,
        fewest_pods_told=on,
        exact_fair_sharing=on,
    )


def _interruptions(found: Found) -> InterruptionRules:
    usual = InterruptionRules()
    return InterruptionRules(
        window_s=found.get("tessera.spot.interruptionsWindow", usual.window_s),
        too_often=found.get("tessera.spot.tooOften", usual.too_often),
    )


def _minimum_runtime(found: Found, *, on: bool) -> MinimumRuntime | None:
    section = "tessera.minimumRuntimeBeforePreemption"
    asked = f"{section}.default" in found or f"{section}.byPriorityClass" in found
    if not found.get(f"{section}.enabled", on or asked):
        return None
    return MinimumRuntime(
        default_s=found.get(f"{section}.default", 0.0),
        by_priority_class=found.entries(f"{section}.byPriorityClass"),
    )


def _consolidation(found: Found, *, on: bool) -> Consolidation | None:
    section = "tessera.consolidation"
    enabled: bool | None = found.get(f"{section}.enabled")
    if enabled:
        _can_move(found, found.places[f"{section}.enabled"], on=on)
    frees = bool(found.get("tessera.packing.freeNodes", False))
    if frees and not enabled:
        raise found.places["tessera.packing.freeNodes"].error(
            "false, or tessera.consolidation.enabled: true, whose bounds hold for these moves"
        )
    if enabled is False or not on:
        return None
    usual = Consolidation()
    return Consolidation(
        every_queue=bool(enabled),
        frees_nodes=frees,
        minimum_runtime_s=found.get(f"{section}.minimumRuntime", usual.minimum_runtime_s),
        moves_per_hour=found.get(f"{section}.movesPerHour", usual.moves_per_hour),
    )


def _can_move(found: Found, place: Place, *, on: bool) -> None:
    """Checks that workloads of ClusterQueues can be told to move. Raises ConfigError."""
    if not on:
        raise place.error("false under policy: kueue, whose decisions move nothing", "true")
    if not found.get("tessera.reserveForPreemptor", on):
        raise place.error("auto or false under reserveForPreemptor: false, which keeps no place free", "true")
