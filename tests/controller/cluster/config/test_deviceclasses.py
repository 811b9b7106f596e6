"""``resources.deviceClassMappings``: what claims of devices count as, and one exact line for each mistake."""

import pytest

from controller.cluster.config.load import parse
from controller.cluster.config.settings import ControllerConfig
from controller.scheduler.model.deviceclaims import DeviceSource, Measure
from yamlfile import ConfigError

MAPPED = "{deviceClassMappings: [{name: a, deviceClassNames: [c], sources: [{%s}]}]}"


def v2(text: str) -> ControllerConfig:
    return parse(f"apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n{text}", "f")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            f"resources: {MAPPED % 'counter: {driver: d}'}",
            "3: resources.deviceClassMappings[0].sources[0].counter: found none, expected the key name",
        ),
        (
            f"resources: {MAPPED % 'capacity: {name: m, driver: d}'}",
            (
                "3: resources.deviceClassMappings[0].sources[0].capacity: found capacity without it, expected the "
                "feature gate KueueDRAIntegrationConsumableCapacity for it"
            ),
        ),
        (
            (
                "featureGates: {KueueDRAIntegrationConsumableCapacity: true}\n"
                f"resources: {MAPPED % 'counter: {name: m, driver: d}}, {capacity: {name: m, driver: d}'}"
            ),
            "4: resources.deviceClassMappings[0].sources: found both, expected counters alone, or capacity alone",
        ),
        (
            f"resources: {MAPPED % 'counter: {name: m, driver: d, deviceSelector: {cel: {expression: a b}}}'}",
            (
                "3: resources.deviceClassMappings[0].sources[0].counter.deviceSelector.cel.expression: found 'a b', "
                "expected a CEL expression (expected an operator or the end, found 'b')"
            ),
        ),
        (
            f"resources: {MAPPED % 'counter: {name: m, driver: d, deviceSelector: {cel: {expression: a.matches(a)}}}'}",
            (
                "3: resources.deviceClassMappings[0].sources[0].counter.deviceSelector.cel.expression: found "
                "'a.matches(a)', expected a CEL expression without matches(), which is not known here"
            ),
        ),
        (
            "resources: {deviceClassMappings: [{name: a, deviceClassNames: [c]}, {name: b, deviceClassNames: [d, c]}]}",
            (
                "3: resources.deviceClassMappings[1]: found c twice, expected each class in one mapping, but for other "
                "counters of it"
            ),
        ),
    ],
)
def test_a_mistake_is_one_exact_line(text: str, line: str) -> None:
    with pytest.raises(ConfigError) as refused:
        v2(text)
    assert str(refused.value) == f"f:{line}"


def test_device_classes_are_mapped_for_the_policy_that_holds() -> None:
    mapped = """
resources:
  deviceClassMappings:
  - {name: gpus, deviceClassNames: [gpu.nvidia.com, gpu.nvidia.com]}
  - name: memory
    deviceClassNames: [mig.nvidia.com]
    sources: [{counter: {name: memory, driver: gpu.nvidia.com, deviceSelector: {cel: {expression: 'true'}}}}]
  - name: slices
    deviceClassNames: [mig.nvidia.com]
    sources: [{counter: {name: slices, driver: gpu.nvidia.com}}]
"""
    found = v2(mapped).engine.claim_rules
    assert [(mapping.resource, mapping.classes) for mapping in found.mappings] == [
        ("gpus", ("gpu.nvidia.com",)),
        ("memory", ("mig.nvidia.com",)),
        ("slices", ("mig.nvidia.com",)),
    ]
    memory = DeviceSource(measure=Measure.COUNTER, name="memory", driver="gpu.nvidia.com", selector="true")
    assert found.mappings[1].sources == (memory,)
    assert (found.every_kind, found.on, found.extended_resources, found.reject) == (False, True, True, True)
    ours = v2(f"{mapped}tessera: {{policy: tessera}}").engine.claim_rules
    assert ours.every_kind
    assert (ours.mappings, ours.reads_slices) == (found.mappings, True)
    gates = ("KueueDRAIntegration", "KueueDRAIntegrationExtendedResource", "KueueDRARejectWorkloadsWhenDRADisabled")
    off = v2("featureGates: {" + ", ".join(f"{gate}: false" for gate in gates) + "}").engine.claim_rules
    assert (off.mappings, off.on, off.extended_resources, off.reject) == ((), False, False, False)


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("", False),
        ("resources: {deviceClassMappings: [{name: a, deviceClassNames: [c]}]}", True),
        ("resources: {deviceClassMappings: [{name: a, deviceClassNames: [c]}]}\ntessera: {policy: tessera}", False),
        (f"resources: {MAPPED % 'counter: {name: m, driver: d}'}\ntessera: {{policy: tessera}}", True),
        (
            (
                "resources: {deviceClassMappings: [{name: a, deviceClassNames: [c]}]}\n"
                "featureGates: {KueueDRAIntegration: false}"
            ),
            False,
        ),
    ],
)
def test_published_devices_are_read_where_an_amount_may_depend_on_them(text: str, reads: bool) -> None:
    assert v2(text).engine.claim_rules.reads_slices is reads


def test_a_counter_needs_its_gate() -> None:
    with pytest.raises(ConfigError, match="expected the feature gate KueueDRAIntegrationPartitionableDevices for it"):
        v2(
            f"resources: {MAPPED % 'counter: {name: m, driver: d}'}\n"
            "featureGates: {KueueDRAIntegrationPartitionableDevices: false}"
        )


@pytest.mark.parametrize(
    ("second", "fits"),
    [
        ("counter: {name: n, driver: d}", True),
        ("counter: {name: m, driver: e}", True),
        ("counter: {name: m, driver: d}", False),
    ],
)
def test_a_class_may_count_as_several_counters(second: str, fits: bool) -> None:
    first = "{name: a, deviceClassNames: [c], sources: [{counter: {name: m, driver: d}}]}"
    text = f"resources: {{deviceClassMappings: [{first}, {{name: b, deviceClassNames: [c], sources: [{{{second}}}]}}]}}"
    if fits:
        assert len(v2(text).engine.claim_rules.mappings) == 2
    else:
        with pytest.raises(ConfigError, match="found c twice"):
            v2(text)
