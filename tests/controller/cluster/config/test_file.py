"""What a configuration file means, version by version, and one exact line for each mistake."""

from pathlib import Path

import pytest

from controller.cluster.config.decisions import HALF_LIFE_S
from controller.cluster.config.load import default, load, parse
from controller.cluster.config.settings import (
    Address,
    ControllerConfig,
    Policy,
    RemediationRules,
    RepairBudget,
)
from controller.jobs.kinds.table import JOB_KINDS
from controller.jobs.serving.table import STAMPED_KINDS
from controller.objects.quantity import Quantity
from controller.scheduler.mirror.specs import System
from controller.scheduler.model.config import (
    BOTH_STRATEGIES,
    AdmissionFairSharing,
    BackfillPolicy,
    Consolidation,
    Extensions,
    FairSharing,
    InterruptionRules,
    MinimumRuntime,
    PreemptionStrategy,
    VictimOrder,
    WaitForPodsReady,
)
from controller.scheduler.model.resources import ResourceName
from yamlfile import ConfigError

HEAD = "apiVersion: config.kueue.x-k8s.io/{}\nkind: Configuration\n"
ALL_ON = Extensions(
    reserve_for_preemptor=True,
    no_eviction_cycles=True,
    minimum_runtime=MinimumRuntime(),
    backfill=BackfillPolicy.CONSERVATIVE,
    victim_order=VictimOrder.LEAST_LOST,
    keep_linked_gpus=True,
    quota_from_capacity=True,
    consolidation=Consolidation(),
    takeovers_first=True,
    limits_before_defaults=True,
    whole_searches=True,
    requests_withdrawn=True,
    own_places=True,
    leaving_nodes=True,
    interruptions=InterruptionRules(),
    coming_nodes=True,
    spot_words=True,
    priced_flavors=True,
    fewest_pods_told=True,
    exact_fair_sharing=True,
)


def v2(text: str = "") -> ControllerConfig:
    return parse(HEAD.format("v1beta2") + text, "f")


def v1(text: str = "") -> ControllerConfig:
    return parse(HEAD.format("v1beta1") + text, "f")


# -- policy ------------------------------------------------------------------------------------------------------


def test_a_file_of_kueues_means_kueue_and_no_file_means_tessera() -> None:
    assert (v2().policy, v2().engine.extensions) == (Policy.KUEUE, Extensions())
    assert (default().policy, default().engine.extensions) == (Policy.TESSERA, ALL_ON)
    assert load(None) == default() or load(None).policy is Policy.TESSERA


def test_the_policy_turns_everything_on_or_off() -> None:
    assert v2("tessera: {}").engine.extensions == ALL_ON
    assert v2("tessera: {policy: tessera}").engine.extensions == ALL_ON
    assert v1("tessera: {policy: kueue}").engine.extensions == Extensions()


def test_evictions_are_held_for_as_long_as_ends_take_under_our_policy_and_where_it_is_asked_for() -> None:
    assert default().hold_evictions_at_most_s == v2("tessera: {policy: tessera}").hold_evictions_at_most_s == 30.0
    assert v2().hold_evictions_at_most_s == v2("tessera: {policy: kueue}").hold_evictions_at_most_s == 0.0
    assert v2("tessera: {policy: kueue, holdEvictionsAtMost: 20s}").hold_evictions_at_most_s == 20.0
    assert v2("tessera: {holdEvictionsAtMost: 10m}").hold_evictions_at_most_s == 600.0
    assert v2("tessera: {policy: tessera, holdEvictionsAtMost: 0s}").hold_evictions_at_most_s == 0.0


@pytest.mark.parametrize("policy", ["kueue", "tessera"])
@pytest.mark.parametrize(
    ("key", "on", "off"),
    [
        ("reserveForPreemptor", "true", "false"),
        ("noEvictionCycles", "true", "false"),
        ("backfill", "conservative", "none"),
        ("victimOrder", "leastLost", "newest"),
        ("keepLinkedGpus", "true", "false"),
        ("quotaFromCapacity", "true", "false"),
        ("minimumRuntimeBeforePreemption", "{enabled: true}", "{enabled: false}"),
    ],
)
def test_a_key_that_is_given_wins_over_the_policy(policy: str, key: str, on: str, off: str) -> None:
    turned_on = v2(f"tessera: {{policy: {policy}, {key}: {on}}}").engine.extensions
    turned_off = v2(f"tessera: {{policy: {policy}, {key}: {off}}}").engine.extensions
    differing = [name for name in ALL_ON.__struct_fields__ if getattr(turned_on, name) != getattr(turned_off, name)]
    assert len(differing) == 1
    assert getattr(turned_on, differing[0]) == getattr(ALL_ON, differing[0])
    assert getattr(turned_off, differing[0]) == getattr(Extensions(), differing[0])


@pytest.mark.parametrize(("written", "served"), [("served", True), ("off", False), ('"off"', False), ("false", False)])
def test_a_bare_off_is_a_boolean_in_yaml_and_turns_v1beta1_of_workload_off_all_the_same(
    written: str, served: bool
) -> None:
    assert v2().serve_old_workloads
    assert v2(f"tessera: {{workloadV1beta1: {written}}}").serve_old_workloads is served


@pytest.mark.parametrize("written", ["true", "on", "auto", "1"])
def test_v1beta1_of_workload_is_served_or_off(written: str) -> None:
    with pytest.raises(ConfigError, match=rf"workloadV1beta1: found '?{written}'?, expected served or off"):
        v2(f"tessera: {{workloadV1beta1: {written}}}")


def test_a_minimum_runtime_is_on_once_it_is_given() -> None:
    section = "minimumRuntimeBeforePreemption: {default: 10m, byPriorityClass: {high: 1h}}"
    found = v2(f"tessera: {{policy: kueue, {section}}}").engine.extensions.minimum_runtime
    assert found == MinimumRuntime(default_s=600, by_priority_class={"high": 3600})
    assert [found.of("high"), found.of("low"), found.of("high", queue_s=5)] == [3600, 600, 5]


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ("{}", Consolidation()),
        ("{consolidation: {enabled: auto}}", Consolidation()),
        ("{consolidation: {enabled: true}}", Consolidation(every_queue=True)),
        ("{reserveForPreemptor: true, consolidation: {enabled: true}}", Consolidation(every_queue=True)),
        ("{reserveForPreemptor: false, consolidation: {enabled: auto}}", Consolidation()),
        (
            "{packing: {freeNodes: true}, consolidation: {enabled: true}}",
            Consolidation(every_queue=True, frees_nodes=True),
        ),
        ("{consolidation: {minimumRuntime: 0s}}", Consolidation(minimum_runtime_s=0)),
        ("{consolidation: {movesPerHour: 0}}", Consolidation(moves_per_hour=0)),
        ("{consolidation: {enabled: false, minimumRuntime: 1m}}", None),
        ("{policy: kueue, consolidation: {enabled: auto, minimumRuntime: 1m}}", None),
        ("{policy: kueue, consolidation: {enabled: false}}", None),
    ],
)
def test_running_workloads_move_as_far_as_the_file_says(block: str, expected: Consolidation | None) -> None:
    assert v2(f"tessera: {block}").engine.extensions.consolidation == expected


def test_under_kueues_policy_nothing_can_be_told_to_move() -> None:
    with pytest.raises(ConfigError, match=r"consolidation\.enabled: found true, expected false under policy: kueue"):
        v2("tessera: {policy: kueue, consolidation: {enabled: true}}")


@pytest.mark.parametrize("more", ["", ", consolidation: {enabled: auto}", ", consolidation: {enabled: false}"])
def test_nodes_are_freed_within_the_bounds_of_consolidation_alone(more: str) -> None:
    expected = r"packing\.freeNodes: found true, expected false, or tessera\.consolidation\.enabled: true"
    with pytest.raises(ConfigError, match=expected):
        v2(f"tessera: {{packing: {{freeNodes: true}}{more}}}")


def test_nothing_moves_for_a_workload_that_its_places_are_not_kept_for() -> None:
    expected = r"consolidation\.enabled: found true, expected auto or false under reserveForPreemptor: false"
    with pytest.raises(ConfigError, match=expected):
        v2("tessera: {reserveForPreemptor: false, consolidation: {enabled: true}}")


# -- decisions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (v2(), None),
        (v2("fairSharing: {}"), FairSharing()),
        (v2("fairSharing:"), None),
        (v1("fairSharing: {}"), None),
        (v1("fairSharing: {enable: false, preemptionStrategies: [LessThanInitialShare]}"), None),
        (v1("fairSharing: {enable: true}"), FairSharing()),
        (v2("fairSharing: {preemptionStrategies: []}"), FairSharing()),
        (
            v2("fairSharing: {preemptionStrategies: [LessThanInitialShare]}"),
            FairSharing(strategies=(PreemptionStrategy.LESS_THAN_INITIAL_SHARE,)),
        ),
        (
            v2("fairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare, LessThanInitialShare]}"),
            FairSharing(strategies=BOTH_STRATEGIES),
        ),
    ],
)
def test_fair_sharing_is_on_as_its_version_says(config: ControllerConfig, expected: FairSharing | None) -> None:
    assert config.engine.fair_sharing == expected


def test_admission_fair_sharing_without_a_half_life_keeps_a_weeks() -> None:
    assert v2().engine.admission_fair_sharing is None
    asked = v2("admissionFairSharing: {usageSamplingInterval: 1m}").engine.admission_fair_sharing
    assert asked == AdmissionFairSharing(half_life_s=7 * 24 * 3600, sampling_interval_s=60)
    assert asked.half_life_s == HALF_LIFE_S


def test_a_half_life_of_zero_keeps_no_history_as_in_kueue() -> None:
    text = "admissionFairSharing: {usageHalfLifeTime: 0s, resourceWeights: {nvidia.com/gpu: 1.5}}"
    found = v1(text).engine.admission_fair_sharing
    assert found == AdmissionFairSharing(half_life_s=0, resource_weights={ResourceName("nvidia.com/gpu"): 1.5})
    assert v1(text + "\nfeatureGates: {AdmissionFairSharing: false}").engine.admission_fair_sharing is None


V1_READY = WaitForPodsReady(timeout_s=300, recovery_timeout_s=None, block_admission=True)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (v2(), WaitForPodsReady()),
        (default(), WaitForPodsReady()),
        (v2("waitForPodsReady: {timeout: 0s}"), WaitForPodsReady()),
        (v2("waitForPodsReady: {timeout: 5m}"), WaitForPodsReady(timeout_s=300, recovery_timeout_s=300)),
        (v2("waitForPodsReady: {recoveryTimeout: 0s}"), WaitForPodsReady(recovery_timeout_s=None)),
        (v2("featureGates: {DisableWaitForPodsReady: true}"), None),
        (v1(), None),
        (v1("waitForPodsReady: {timeout: 5m}"), None),
        (v1("waitForPodsReady: {enable: true}"), V1_READY),
        (
            v1("waitForPodsReady: {enable: true, requeuingStrategy: {timestamp: Creation, backoffLimitCount: 0}}"),
            WaitForPodsReady(
                timeout_s=300,
                recovery_timeout_s=None,
                block_admission=True,
                requeue_by_eviction=False,
                backoff_limit_count=0,
            ),
        ),
    ],
)
def test_waiting_for_pods_has_its_versions_defaults(
    config: ControllerConfig, expected: WaitForPodsReady | None
) -> None:
    assert config.engine.wait_for_pods_ready == expected


def test_transformations_and_exclusions_rule_what_requests_count() -> None:
    rules = v2(
        """
resources:
  excludeResourcePrefixes: [example.com/]
  transformations:
  - {input: mig, strategy: Replace, outputs: {memory: 10Gi, slices: 1.5}}
  - {input: core, multiplyBy: nodes, outputs: {total: 1}}
"""
    ).engine.request_rules
    nano = 10**9
    asked = {"mig": 2, "example.com/x": 1, "core": 3, "nodes": 4}
    assert rules.apply({ResourceName(name): count * nano for name, count in asked.items()}) == {
        "memory": 20 * 2**30,
        "slices": 3,
        "core": 3,
        "nodes": 4,
        "total": 12,
    }
    assert Quantity(nano).value == 1


def test_undeclared_resources_are_ignored_only_while_the_gate_is_on() -> None:
    text = "resources: {quotaCheckStrategy: IgnoreUndeclared}\n"
    assert v2(text).engine.quota_check_strategy == "IgnoreUndeclared"
    assert v2(text + "featureGates: {QuotaCheckStrategy: false}").engine.quota_check_strategy == "BlockUndeclared"


def test_gates_are_set_and_old_ones_are_named() -> None:
    config = v1("featureGates:\n  PartialAdmission: false\n  LendingLimit: false\n  PriorityBoost: on\n")
    assert [config.engine.gates.on(name) for name in ("PartialAdmission", "PriorityBoost")] == [False, True]
    assert [str(note) for note in config.without_effect] == [
        "f:5: featureGates.LendingLimit: no effect: no gate of this version of Kueue (always on)"
    ]


# -- process -----------------------------------------------------------------------------------------------------


def test_jobs_grow_where_their_pods_above_a_minimum_are_let_go_of_and_queued() -> None:
    assert v2().jobs_grow
    assert not v2("featureGates:\n  TopologyAwareScheduling: false\n").jobs_grow
    assert not v2('integrations:\n  frameworks: ["batch/job"]\n').jobs_grow
    assert v2('integrations:\n  frameworks: ["batch/job", "pod"]\n').jobs_grow


def test_a_negative_rate_is_no_limit_and_none_is_kueues() -> None:
    assert v2("clientConnection: {qps: -1, burst: 7}").client.qps is None
    assert v2("clientConnection: {burst: 7}").client.qps == 300
    assert v2("clientConnection: {qps: 0}").client.qps == 300


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ("{}", RemediationRules()),
        ("{budget: 4}", RemediationRules(budget=RepairBudget(gpus=4))),
        ("{budget: 25%}", RemediationRules(budget=RepairBudget(percent=25))),
        (
            "{window: 1h, wait: 5m, levels: [rack, block, rack]}",
            RemediationRules(window_s=3600.0, wait_s=300.0, levels=("rack", "block")),
        ),
    ],
)
def test_repairs_have_the_budget_that_the_file_gives(block: str, expected: RemediationRules) -> None:
    assert v2(f"tessera: {{remediation: {block}}}").remediation == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('":8443"', Address("0.0.0.0", 8443)),
        ("127.0.0.1:1", Address("127.0.0.1", 1)),
        ('"[::1]:9"', Address("::1", 9)),
        ('"0"', None),
        ('""', None),
    ],
)
def test_addresses_are_gos(text: str, expected: Address | None) -> None:
    assert v2(f"metrics: {{bindAddress: {text}}}").metrics.address == expected


def test_own_and_system_namespaces_are_left_out_unless_the_file_says_otherwise() -> None:
    name = "kubernetes.io/metadata.name"
    selector = v2().namespace_selector("here")
    assert [selector.matches({name: each}) for each in ("kube-system", "here", "team")] == [False, False, True]
    assert v2("namespace: site").namespace_selector("here").matches({name: "here"})
    assert v2("managedJobsNamespaceSelector: {}").namespace_selector("here").matches({name: "here"})


def test_ciphers_go_by_openssls_names() -> None:
    tls = v2("tls: {minVersion: VersionTLS12, cipherSuites: [TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256]}").tls
    assert (tls.min_version, tls.ciphers) == ("1.2", ("ECDHE-ECDSA-CHACHA20-POLY1305",))


def test_an_empty_list_of_job_kinds_is_the_default() -> None:
    every = (*(kind.framework for kind in JOB_KINDS), *(kind.framework for kind in STAMPED_KINDS))
    assert v2("integrations: {frameworks: []}").integrations.frameworks == every
    assert v2("").integrations.frameworks == every
    assert "pod" not in every


def test_job_kinds_that_are_not_there_yet_are_named_and_kept() -> None:
    config = v2("integrations:\n  frameworks:\n  - batch/job\n  - kubeflow.org/mxjob\n  - batch/job\n")
    assert config.integrations.frameworks == ("batch/job", "kubeflow.org/mxjob")
    assert [(note.where, note.key) for note in config.without_effect] == [("f:6", "integrations.frameworks[1]")]


# -- mistakes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("fairSharng: {}", "3: fairSharng: found an unknown key; did you mean fairSharing?, expected one of "),
        (
            "waitForPodsReady:\n  timeOut: 5m",
            "4: waitForPodsReady.timeOut: found an unknown key; did you mean timeout?, expected one of ",
        ),
        (
            "waitForPodsReady:\n  timeout: 5",
            "4: waitForPodsReady.timeout: found 5, expected a duration such as 90s or 1h30m",
        ),
        (
            "waitForPodsReady: {timeout: -5m}",
            "3: waitForPodsReady.timeout: found '-5m', expected a duration such as 90s or 1h30m",
        ),
        (
            "waitForPodsReady: {enable: true}",
            (
                "3: waitForPodsReady.enable: found a key of v1beta1, expected the block itself; the gate "
                "DisableWaitForPodsReady turns it off (v1beta2 has no such key)"
            ),
        ),
        (
            "waitForPodsReady: {requeuingStrategy: {timestamp: Now}}",
            "3: waitForPodsReady.requeuingStrategy.timestamp: found 'Now', expected Eviction or Creation",
        ),
        (
            "fairSharing: {preemptionStrategies: [LessThanInitialShare, LessThanOrEqualToFinalShare]}",
            (
                "3: fairSharing.preemptionStrategies: found [LessThanInitialShare, LessThanOrEqualToFinalShare], "
                "expected [LessThanOrEqualToFinalShare], [LessThanInitialShare] or [LessThanOrEqualToFinalShare, "
                "LessThanInitialShare]"
            ),
        ),
        (
            "fairSharing:\n  preemptionStrategies:\n  - Some",
            (
                "5: fairSharing.preemptionStrategies[0]: found 'Some', expected LessThanOrEqualToFinalShare or "
                "LessThanInitialShare"
            ),
        ),
        ("fairSharing: true", "3: fairSharing: found true, expected a section"),
        (
            "featureGates:\n  PartialAdmision: true",
            (
                "4: featureGates.PartialAdmision: found an unknown gate; did you mean PartialAdmission?, expected a "
                "feature gate of Kueue"
            ),
        ),
        (
            "featureGates: {PartialAdmission: 'true'}",
            "3: featureGates.PartialAdmission: found 'true', expected true or false",
        ),
        ("featureGates: {PartialAdmission: }", "3: featureGates.PartialAdmission: found nothing, expected true or"),
        (
            "admissionFairSharing: {resourceWeights: {cpu: -1}}",
            "3: admissionFairSharing.resourceWeights.cpu: found -1, expected a number, at least 0",
        ),
        (
            "resources:\n  transformations:\n  - {strategy: Retain}",
            "5: resources.transformations[0]: found none, expected the key input",
        ),
        (
            "resources:\n  transformations:\n  - {input: a}\n  - input: a",
            "6: resources.transformations[1].input: found a twice, expected each input once",
        ),
        (
            "resources: {transformations: [{input: a, outputs: {b: much}}]}",
            "3: resources.transformations[0].outputs.b: found 'much', expected a quantity such as 500m or 1Gi",
        ),
        (
            "resources:\n  transformations:\n  - {input: pods, outputs: {b: 1}}",
            "5: resources.transformations[0].input: found pods, expected another resource: pods are counted by",
        ),
        (
            "resources:\n  transformations:\n  - {input: a}\n  - {input: b, multiplyBy: pods}",
            "6: resources.transformations[1].multiplyBy: found pods, expected another resource: pods are counted by",
        ),
        (
            "resources:\n  transformations:\n  - {input: a, outputs: {b: 1, pods: 2}}",
            "5: resources.transformations[0].outputs.pods: found pods, expected another resource: pods are counted by",
        ),
        (
            "resources:\n  deviceClassMappings:\n  - {name: pods, deviceClassNames: [gpu]}",
            "5: resources.deviceClassMappings[0].name: found pods, expected another resource: pods are counted by",
        ),
        (
            "resources: {excludeResourcePrefixes: ['']}",
            "3: resources.excludeResourcePrefixes[0]: found '', expected a string that is not empty",
        ),
        (
            "tessera: {remediation: {budget: 0%}}",
            "3: tessera.remediation.budget: found '0%', expected a share of the GPUs from 1% to 100%, or a number of",
        ),
        (
            "tessera: {remediation: {budget: 2.5}}",
            "3: tessera.remediation.budget: found 2.5, expected a share of the GPUs from 1% to 100%, or a number of",
        ),
        (
            "tessera: {remediation: {levels: rack}}",
            "3: tessera.remediation.levels: found 'rack', expected a list",
        ),
        (
            "tessera: {remediation: {levels: [a rack]}}",
            "3: tessera.remediation.levels[0]: found 'a rack', expected a name such as gpu or nvidia.com/gpu",
        ),
        (
            "tessera: {remediation: {window: 9m}}",
            "3: tessera.remediation.window: found '9m', expected a duration such as 90s or 1h30m, at least 600s",
        ),
        ("integrations: {frameworks: batch/job}", "3: integrations.frameworks: found 'batch/job', expected a list"),
        ("integrations: {frameworks: [batch/jop]}", "3: integrations.frameworks[0]: found 'batch/jop', expected one"),
        (
            "integrations: {externalFrameworks: [Job]}",
            "3: integrations.externalFrameworks[0]: found 'Job', expected Kind.version.group",
        ),
        (
            "managedJobsNamespaceSelector: {}\nintegrations: {frameworks: [pod]}",
            (
                "3: managedJobsNamespaceSelector: found a selector that matches kube-system, expected one that "
                "leaves out kube-system"
            ),
        ),
        (
            "managedJobsNamespaceSelector: {matchExpressions: [{key: a, operator: Is}]}",
            "3: managedJobsNamespaceSelector.matchExpressions[0].operator: found 'Is', expected In, NotIn, Exists or",
        ),
        (
            "managedJobsNamespaceSelector: {matchLabels: {a b: c}}",
            "3: managedJobsNamespaceSelector.matchLabels.a b: found 'a b', expected a label key",
        ),
        (
            "leaderElection:\n  renewDeadline: 20s",
            "4: leaderElection.renewDeadline: found '20s', expected leaseDuration > renewDeadline > retryPeriod > 0s",
        ),
        (
            "leaderElection: {leaseDuration: 10s}",
            "3: leaderElection.leaseDuration: found '10s', expected leaseDuration > renewDeadline > retryPeriod > 0s",
        ),
        (
            "leaderElection: {retryPeriod: 0s}",
            "3: leaderElection.retryPeriod: found '0s', expected leaseDuration > renewDeadline > retryPeriod > 0s",
        ),
        ("leaderElection: {resourceLock: configmaps}", "3: leaderElection.resourceLock: found 'configmaps', expected"),
        ("metrics: {bindAddress: 8080}", "3: metrics.bindAddress: found 8080, expected HOST:PORT, :PORT, or"),
        ("metrics: {bindAddress: ':99999'}", "3: metrics.bindAddress: found ':99999', expected HOST:PORT"),
        ("webhook: {port: 0}", "3: webhook.port: found 0, expected an integer from 1 to 65535"),
        (
            "resources: {deviceClassMappings: [{name: gpu}]}",
            "3: resources.deviceClassMappings[0]: found none, expected the key deviceClassNames",
        ),
        (
            "resources: {deviceClassMappings: [{name: gpu, deviceClassNames: [a], sources: [{}]}]}",
            "3: resources.deviceClassMappings[0].sources[0]: found both or none, expected one of counter and capacity",
        ),
        (
            f"resources: {{deviceClassMappings: [{', '.join(['{name: a, deviceClassNames: [b]}'] * 17)}]}}",
            "3: resources.deviceClassMappings: found 17, expected at most 16 mappings",
        ),
        ("tls: {minVersion: '1.2'}", "3: tls.minVersion: found '1.2', expected VersionTLS10,"),
        ("tessera:", "3: tessera: found nothing, expected a section, e.g. {policy: tessera}"),
        ("tessera: {policy: mine}", "3: tessera.policy: found 'mine', expected kueue or tessera"),
        ("tessera: {backfil: none}", "3: tessera.backfil: found an unknown key; did you mean backfill?, expected one"),
        (
            "tessera: {pendingCondition: {atMostEvery: 1ms}}",
            "3: tessera.pendingCondition.atMostEvery: found '1ms', expected a duration such as 90s or 1h30m, at least",
        ),
        (
            "tessera: {holdEvictionsAtMost: 601s}",
            "3: tessera.holdEvictionsAtMost: found '601s', expected a duration such as 90s or 1h30m, at most 600s",
        ),
        ("kind: Configuration", "3: kind: found the key twice, expected it once"),
    ],
)
def test_a_mistake_in_the_controllers_file_gets_one_line_that_says_where_and_what(text: str, line: str) -> None:
    with pytest.raises(ConfigError) as refused:
        v2(text)
    assert str(refused.value).startswith(f"f:{line}")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "f:1: found nothing, expected a section with apiVersion: config.kueue.x-k8s.io/v1beta2 and kind:"),
        ("kind: Configuration", "f:1: found none, expected the key apiVersion, config.kueue.x-k8s.io/v1beta2 or"),
        ("apiVersion: config.kueue.x-k8s.io/v1beta2", "f:1: found none, expected the key kind, Configuration"),
        (
            "kind: Configuration\napiVersion: config.kueue.x-k8s.io/v1",
            (
                "f:2: apiVersion: found 'config.kueue.x-k8s.io/v1', expected config.kueue.x-k8s.io/v1beta2 or "
                "config.kueue.x-k8s.io/v1beta1"
            ),
        ),
        (
            "apiVersion: v1\nkind: ConfigMap\ndata: {}",
            (
                "f:1: apiVersion: found 'v1', expected config.kueue.x-k8s.io/v1beta2 or config.kueue.x-k8s.io/v1beta1 "
                "(a ConfigMap's file is the text below its data)"
            ),
        ),
    ],
)
def test_a_file_that_is_no_configuration_is_told_so(text: str, line: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(text, "f")
    assert str(refused.value).startswith(line)


def test_a_missing_file_of_the_controller_is_a_mistake_too(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="found no such file or directory, expected a readable file"):
        load(tmp_path / "none.yaml")


def test_a_mistake_is_not_answered_with_keys_that_this_version_refuses() -> None:
    with pytest.raises(ConfigError, match=r"waitForPodsReady\.timout: .*did you mean timeout") as wrong:
        v2("waitForPodsReady: {timout: 5m}")
    assert "enable" not in str(wrong.value)
    with pytest.raises(ConfigError, match="enable, maxTimeoutOnWorkload"):
        v1("waitForPodsReady: {timout: 5m}")
    with pytest.raises(ConfigError) as section:
        v2("queueVisibilty: {}")
    assert "queueVisibility" not in str(section.value)


def test_a_kind_that_others_queue_is_none_of_ours() -> None:
    config = v2("integrations: {externalFrameworks: [Job.v1.batch, Thing.v1.example.dev]}")
    assert "batch/job" not in config.integrations.frameworks
    assert config.integrations.external_frameworks == ("Job.v1.batch", "Thing.v1.example.dev")


@pytest.mark.parametrize("second", ["rack", "kubernetes.io/hostname"])
def test_each_tier_has_a_label_of_its_own(second: str) -> None:
    table = "tessera: {volcano: {topology: [{nodeLabel: rack}, {nodeLabel: SECOND}]}}"
    with pytest.raises(ConfigError, match=r"topology\[1\].nodeLabel: found .*, expected a label of its own"):
        v2(table.replace("SECOND", second))
    switch = v2(table.replace("SECOND", "block")).switch(System.VOLCANO)
    assert switch.adoption.levels == ("block", "rack"), "the widest first"
