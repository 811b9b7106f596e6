"""``resources.deviceClassMappings``: the resources as which claims of devices count. Source: KEP 2941 of Kueue."""

from collections.abc import Iterator, Mapping
from typing import Final

from controller.cluster.config.reader import Found
from controller.cluster.config.settings import Policy
from controller.scheduler.dra.claims.cel import CelSyntaxError, Selector
from controller.scheduler.model.deviceclaims import ClaimRules, DeviceClassMapping, DeviceSource, Measure
from controller.scheduler.model.gates import FeatureGates
from controller.scheduler.model.resources import PODS

OTHER_THAN_PODS: Final = "another resource: pods are counted by themselves"
_PATH: Final = "resources.deviceClassMappings"
_MOST: Final = 16
_GATES: Final[Mapping[Measure, str]] = {
    Measure.COUNTER: "KueueDRAIntegrationPartitionableDevices",
    Measure.CAPACITY: "KueueDRAIntegrationConsumableCapacity",
}


def claim_rules(found: Found, policy: Policy, gates: FeatureGates) -> ClaimRules:
    """The rules by which claims of devices count. Raises ConfigError."""
    items = found.items(_PATH)
    if len(items) > _MOST:
        raise found.places[_PATH].error(f"at most {_MOST} mappings", f"{len(items)}")
    mappings = tuple(_mapping(found, item, gates) for item in items)
    _check_classes(found, items, mappings)
    return ClaimRules(
        mappings=mappings,
        every_kind=policy is Policy.TESSERA,
        on=gates.on("KueueDRAIntegration"),
        extended_resources=gates.on("KueueDRAIntegrationExtendedResource"),
        reject=gates.on("KueueDRARejectWorkloadsWhenDRADisabled"),
    )


def check_counted(found: Found, path: str) -> None:
    """Checks that a resource is one that the configuration may count. Raises ConfigError."""
    if found.get(path, "") == PODS:
        raise found.places[path].error(OTHER_THAN_PODS, PODS)


def _mapping(found: Found, item: str, gates: FeatureGates) -> DeviceClassMapping:
    classes = found.values(f"{item}.deviceClassNames")
    if not classes:
        raise found.places[item].error("the key deviceClassNames", "none")
    sources = tuple(_sources(found, item, gates))
    measures = {source.measure for source in sources}
    if len(measures) > 1:
        raise found.places[f"{item}.sources"].error("counters alone, or capacity alone", "both")
    check_counted(found, f"{item}.name")
    return DeviceClassMapping(
        resource=found.required(item, "name"), classes=tuple(dict.fromkeys(classes)), sources=sources
    )


def _sources(found: Found, item: str, gates: FeatureGates) -> Iterator[DeviceSource]:
    for source in found.items(f"{item}.sources"):
        measures = [measure for measure in Measure if f"{source}.{measure}" in found]
        if len(measures) != 1:
            raise found.places[source].error("one of counter and capacity", "both or none")
        path, gate = f"{source}.{measures[0]}", _GATES[measures[0]]
        if not gates.on(gate):
            raise found.places[path].error(f"the feature gate {gate} for it", f"{measures[0]} without it")
        expression = f"{path}.deviceSelector.cel.expression"
        _check_selector(found, expression)
        yield DeviceSource(
            measure=measures[0],
            name=found.required(path, "name"),
            driver=found.required(path, "driver"),
            selector=found.get(expression, ""),
        )


def _check_selector(found: Found, path: str) -> None:
    text = found.get(path)
    if text is None:
        return
    try:
        unknown = Selector(text).unknown
    except CelSyntaxError as error:
        raise found.places[path].error(f"a CEL expression ({error})") from None
    if unknown:
        raise found.places[path].error(f"a CEL expression without {unknown[0]}, which is not known here")


def _check_classes(found: Found, items: list[str], mappings: tuple[DeviceClassMapping, ...]) -> None:
    """Checks that each class counts as one resource, unless each of its mappings counts another counter of it."""
    known: dict[str, list[DeviceClassMapping]] = {}
    for item, mapping in zip(items, mappings, strict=True):
        for name in mapping.classes:
            others = known.setdefault(name, [])
            if any(not _apart(mapping, other) for other in others):
                raise found.places[item].error(
                    "each class in one mapping, but for other counters of it", f"{name} twice"
                )
            others.append(mapping)


def _apart(one: DeviceClassMapping, other: DeviceClassMapping) -> bool:
    pairs = [
        {(source.driver, source.name) for source in mapping.sources if source.measure is Measure.COUNTER}
        for mapping in (one, other)
    ]
    return all(pairs) and pairs[0].isdisjoint(pairs[1])
