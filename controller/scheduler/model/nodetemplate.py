"""Nodes that can come: the annotation ``tessera.dev/node-template`` of a ResourceFlavor.

A JSON or YAML mapping ``{allocatable: {cpu: "96"}, gpus: 8, product: NVIDIA H100 80GB HBM3, max: 4, after: 4m}`` says
what a node of the flavor is like once an autoscaler has made it, how many the flavor may have at once, those that are
there included, and how long one takes as a rule. ``labels`` and ``taints`` are those of the nodes beside the flavor's
``nodeLabels``; ``gpuMemory`` of one GPU; ``nvlink: full`` says that every two GPUs are joined. ``devices`` are those
that its drivers give out by claim. A GPU is given out either by claim or by a device plugin: of ``gpus`` those that
``devices`` has are not among the allocatable. ``placeholderClaims: false`` says that the flavor's autoscaler brings no
node for a pod with claims.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from controller.messages.queues import wrong_annotation
from controller.objects.core import Taint
from controller.objects.deviceclaims import Device, DeviceAttribute, DeviceCapacity
from controller.objects.quantity import Quantity, QuantityError, parse_quantity
from controller.objects.queues import ResourceFlavor
from controller.scheduler.model.podrequests import amounts
from controller.scheduler.model.resources import Amount, ResourceName
from inventory.api.names import LINK_GROUP, NODE_TEMPLATE, PROVISION_TIMEOUT
from yamlfile.levels import UnreadError, strangers_value
from yamlfile.parsers import Unfit, go_duration

MOST_NODES: Final = 5000
MOST_GPUS: Final = 64
USUAL_AFTER_S: Final = 300.0
PROVISION_TIMEOUT_S: Final = 900.0
"""The seconds for which a workload with quota waits for its nodes, where neither its job nor its flavors say."""
GPU: Final = "nvidia.com/gpu"
GPU_DRIVER: Final = "gpu.nvidia.com"
MOST_DEVICES: Final = 128
"""The most devices of one entry: a ResourceSlice has no more."""
_LONGEST: Final = 16_384
_MOST_LEVELS: Final = 8
_MOST_ENTRIES: Final = 100
_MOST_S: Final = 86_400.0
_MIB: Final = 1 << 20
_SHOWN: Final = 120
_LABEL: Final = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?", re.ASCII)
_KEY: Final = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", re.ASCII)
_ENOUGH: Final[Mapping[str, Quantity]] = {
    "cpu": parse_quantity("1M"),
    "memory": parse_quantity("1Pi"),
    "ephemeral-storage": parse_quantity("1Pi"),
    "pods": parse_quantity("110"),
}
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_KEYS: Final = (
    "allocatable",
    "gpus",
    "product",
    "gpuMemory",
    "nvlink",
    "devices",
    "placeholderClaims",
    "labels",
    "taints",
    "max",
    "after",
)
_DEVICE_KEYS: Final = ("driver", "count", "attributes", "capacity")
_DEVICES: Final = "a list of {driver, count, attributes, capacity}"
_MOST_TEXT: Final = 64
_INT64: Final = 1 << 63
_DRIVER: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?", re.ASCII)
_ATTRIBUTE: Final = re.compile(r"([a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?/)?[A-Za-z_][A-Za-z0-9_]{0,31}", re.ASCII)
_VERSION: Final = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)([-+][0-9A-Za-z.+-]+)?", re.ASCII)
_EXPECTED: Final = "{allocatable, gpus, devices, max, after} in JSON or YAML"


class DriverDevices(NamedTuple):
    """The devices that a driver gives out by claim on a node that is not there yet, as its ResourceSlice would have
    them.
    """

    driver: str
    devices: tuple[Device, ...]


class NodeTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """One node of a flavor that is not there yet. ``gpus``: those that a device plugin gives out. ``most``: the nodes
    of the flavor at once, those that are there included. ``after_s``: seconds that a node takes as a rule.
    ``placeholder_claims``: whether placeholders have the claims of their pods.
    """

    allocatable: Mapping[str, Quantity]
    gpus: int
    product: str
    gpu_memory_mib: int
    nvlink: bool
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    devices: tuple[DriverDevices, ...]
    placeholder_claims: bool
    most: int
    after_s: float

    @property
    def amounts(self) -> Mapping[ResourceName, Amount]:
        """What quotas count of a node: what the template names, in the engine's units."""
        return amounts(self.allocatable)

    @property
    def offered(self) -> Mapping[str, Quantity]:
        """What pods find on a node. Of CPU, memory and disk that the template does not name there is enough."""
        return {**_ENOUGH, **self.allocatable}


class NodeTemplateError(ValueError):
    """The annotation cannot be used. The message is one line that names the field, what was found and what was
    expected.
    """


def template_of(flavor: ResourceFlavor) -> NodeTemplate | None:
    """The template of the flavor's nodes to come; None without the annotation. Raises NodeTemplateError."""
    text = flavor.metadata.annotations.get(NODE_TEMPLATE)
    if text is None:
        return None
    found = _read(text)
    if isinstance(found, str):
        raise NodeTemplateError(f"{NODE_TEMPLATE}: {found}")
    return found


def timeout_s(text: str | None) -> float | None:
    """The seconds that an annotation ``PROVISION_TIMEOUT`` says; None where it says nothing that counts."""
    try:
        found = go_duration(text or "")
    except Unfit:
        return None
    return found if 0.0 < found <= _MOST_S else None


def timeout_problem(annotations: Mapping[str, str]) -> str:
    """The problem of an annotation ``PROVISION_TIMEOUT`` of a job or a flavor; empty if it has none."""
    text = annotations.get(PROVISION_TIMEOUT)
    if text is None or timeout_s(text) is not None:
        return ""
    return wrong_annotation(PROVISION_TIMEOUT, text, "a duration such as 90s or 15m, at most 24h")


def template_problem(flavor: ResourceFlavor) -> str:
    """The problem of the flavor's annotation; empty if it has none. Pods of a flavor without a topology are not placed
    by the engine: it does not know which of them would wait.
    """
    try:
        found = template_of(flavor)
    except NodeTemplateError as wrong:
        return str(wrong)
    if found is not None and flavor.spec.topology_name is None:
        return f"{NODE_TEMPLATE}: found no spec.topologyName, expected a Topology that ends at kubernetes.io/hostname"
    return ""


@lru_cache(maxsize=1024)
def _read(text: str) -> NodeTemplate | str:
    """The template, or what is wrong with it. One that is known is found in 0.1 us in place of 190."""
    try:
        return _template(strangers_value(text, dict, _EXPECTED, longest=_LONGEST, most_levels=_MOST_LEVELS))
    except (UnreadError, _FieldError) as error:
        return str(error)


class _FieldError(ValueError):
    """One field is wrong."""


def _template(given: Mapping[Any, Any]) -> NodeTemplate:
    for key in given:
        if key not in _KEYS:
            raise _FieldError(f"found the field {_quoted(key)}, expected {', '.join(_KEYS)}")
    allocatable = dict(_quantities(given.get("allocatable")))
    gpus = _number(given, "gpus", 0, MOST_GPUS, usual=_whole(allocatable.get(GPU)))
    product = given.get("product", "")
    if not isinstance(product, str) or len(product) > _SHOWN:
        raise _FieldError(f"product: found {_quoted(product)}, expected a name such as NVIDIA H100 80GB HBM3")
    memory = _quantity(given.get("gpuMemory", 0), "gpuMemory")
    nvlink = given.get("nvlink", "none")
    if nvlink not in ("full", "none"):
        raise _FieldError(f"nvlink: found {_quoted(nvlink)}, expected full or none")
    placeholder_claims = given.get("placeholderClaims", True)
    if not isinstance(placeholder_claims, bool):
        raise _FieldError(f"placeholderClaims: found {_quoted(placeholder_claims)}, expected true or false")
    if "max" not in given:
        raise _FieldError("max: found nothing, expected the most nodes at once")
    known = _known(product, memory, nvlink=nvlink == "full")
    entries = tuple(_entries(given.get("devices"), gpus if "gpus" in given else 0, known))
    plugged = _plugged(gpus, entries, allocatable.get(GPU))
    if plugged and GPU not in allocatable:
        allocatable[GPU] = parse_quantity(str(plugged))
    if not allocatable and not entries:
        raise _FieldError("expected allocatable, gpus or devices, found neither")
    return NodeTemplate(
        allocatable=allocatable,
        gpus=plugged,
        product=product,
        gpu_memory_mib=int(memory.fraction) // _MIB,
        nvlink=nvlink == "full",
        labels=dict(_labels(given.get("labels"))),
        taints=tuple(_taints(given.get("taints"))),
        devices=_by_driver(entries),
        placeholder_claims=placeholder_claims,
        most=_number(given, "max", 1, MOST_NODES),
        after_s=_after_s(given.get("after")),
    )


def _whole(quantity: Quantity | None) -> int:
    return 0 if quantity is None else min(int(quantity.fraction), MOST_GPUS)


def _number(given: Mapping[Any, Any], key: str, least: int, most: int, *, usual: int = 0) -> int:
    found = given.get(key, usual)
    if not isinstance(found, int) or isinstance(found, bool) or not least <= found <= most:
        raise _FieldError(f"{key}: found {_quoted(found)}, expected a whole number from {least} to {most}")
    return found


def _mapping(given: Any, key: str, of: str) -> Mapping[Any, Any]:
    if given is None:
        return {}
    if not isinstance(given, dict) or len(given) > _MOST_ENTRIES:
        raise _FieldError(f"{key}: found {_quoted(given)}, expected at most {_MOST_ENTRIES} of {of}")
    return given


def _quantities(given: Any) -> Iterator[tuple[str, Quantity]]:
    for name, amount in _mapping(given, "allocatable", "{RESOURCE: quantity}").items():
        where = f"allocatable: {_plain(name)}"
        if not _matches(_KEY, name):
            raise _FieldError(f"{where}: expected the name of a resource")
        yield name, _quantity(amount, where)


def _quantity(given: Any, where: str) -> Quantity:
    try:
        amount = None if isinstance(given, bool) else parse_quantity(given)
    except QuantityError:
        amount = None
    if amount is None or amount.nanos < 0:
        raise _FieldError(f"{where}: found {_quoted(given)}, expected a quantity from 0")
    return amount


def _labels(given: Any) -> Iterator[tuple[str, str]]:
    for name, value in _mapping(given, "labels", "{LABEL: value}").items():
        if not _matches(_KEY, name):
            raise _FieldError(f"labels: found {_quoted(name)}, expected the name of a label")
        if not _matches(_LABEL, value):
            raise _FieldError(f"labels: {name}: found {_quoted(value)}, expected the value of a label as text")
        yield name, value


def _taints(given: Any) -> Iterator[Taint]:
    if given is None:
        return
    if not isinstance(given, list) or len(given) > _MOST_ENTRIES:
        raise _FieldError(f"taints: found {_quoted(given)}, expected a list of {{key, value, effect}}")
    for at, entry in enumerate(given):
        if not isinstance(entry, dict) or not {*entry} <= {"key", "value", "effect"}:
            raise _FieldError(f"taints[{at}]: found {_quoted(entry)}, expected {{key, value, effect}}")
        key, value, effect = entry.get("key"), entry.get("value", ""), entry.get("effect")
        if not isinstance(key, str) or not _matches(_KEY, key) or not _matches(_LABEL, value) or effect not in _EFFECTS:
            raise _FieldError(
                f"taints[{at}]: found {_quoted(entry)}, expected a key, a value and one of {', '.join(_EFFECTS)}"
            )
        yield Taint(key=key, value=value, effect=effect)


class _Entry(NamedTuple):
    """One entry of ``devices``. ``gpus``: how many of the template's ``gpus`` they are."""

    driver: str
    number: int
    gpus: int
    device: Device


def _known(product: str, memory: Quantity, *, nvlink: bool) -> Device:
    """A GPU as its driver would publish it, as far as the template says it by itself."""
    attributes = {"type": DeviceAttribute(string="gpu")}
    if product and len(product) <= _MOST_TEXT:
        attributes["productName"] = DeviceAttribute(string=product)
    if nvlink:
        attributes[LINK_GROUP] = DeviceAttribute(int_=0)
    return Device(attributes=attributes, capacity={"memory": DeviceCapacity(value=memory)} if memory.nanos else {})


def _plugged(gpus: int, entries: Iterable[_Entry], allocatable: Quantity | None) -> int:
    """The GPUs that are left to a device plugin: none is given out twice."""
    by_claim = sum(entry.gpus for entry in entries)
    left = gpus - by_claim
    if left < 0:
        raise _FieldError(f"devices: found {by_claim} GPUs, expected at most the {gpus} of gpus")
    if by_claim and allocatable is not None and allocatable.fraction != left:
        raise _FieldError(
            f"allocatable: {GPU}: found {allocatable}, expected the {left} of gpus that are not in devices"
        )
    return left


def _entries(given: Any, gpus: int, known: Device) -> Iterator[_Entry]:
    """The entries of ``devices``. ``gpus``: what the template says by that key, 0 for nothing; ``known``: a GPU of
    them.
    """
    if given is None:
        return
    if not isinstance(given, list) or not 0 < len(given) <= _MOST_ENTRIES:
        raise _FieldError(f"devices: found {_quoted(given)}, expected {_DEVICES}")
    for at, entry in enumerate(given):
        where = f"devices[{at}]"
        if not isinstance(entry, dict) or not {*entry} <= {*_DEVICE_KEYS}:
            raise _FieldError(f"{where}: found {_quoted(entry)}, expected {{{', '.join(_DEVICE_KEYS)}}}")
        driver = entry.get("driver")
        if not isinstance(driver, str) or not _matches(_DRIVER, driver):
            raise _FieldError(f"{where}: driver: found {_quoted(driver)}, expected a name such as {GPU_DRIVER}")
        if "count" not in entry and not gpus:
            raise _FieldError(f"{where}: count: found nothing, expected the devices of one node")
        try:
            count = _number(entry, "count", 1, MOST_DEVICES, usual=gpus)
            attributes, capacity = dict(_attributes(entry.get("attributes"))), dict(_capacity(entry.get("capacity")))
        except _FieldError as error:
            raise _FieldError(f"{where}: {error}") from None
        is_gpu = driver == GPU_DRIVER or "count" not in entry
        if is_gpu:
            attributes, capacity = known.attributes | attributes, known.capacity | capacity
        yield _Entry(driver, count, count if is_gpu and gpus else 0, Device(attributes=attributes, capacity=capacity))


def _by_driver(entries: Iterable[_Entry]) -> tuple[DriverDevices, ...]:
    """The devices of one node. A GPU has a ``uuid``, which nobody knows yet: selectors and constraints that only ask
    whether there is one, or whether two differ, hold.
    """
    by_driver: dict[str, list[Device]] = {}
    for entry in entries:
        devices = by_driver.setdefault(entry.driver, [])
        for at in range(len(devices), len(devices) + entry.number):
            attributes = entry.device.attributes
            if attributes.get("type") == DeviceAttribute(string="gpu"):
                attributes = {"uuid": DeviceAttribute(string=f"GPU-to-come-{at}")} | attributes
            devices.append(msgspec.structs.replace(entry.device, name=f"device-{at}", attributes=attributes))
    return tuple(DriverDevices(driver, tuple(devices)) for driver, devices in by_driver.items())


def _attributes(given: Any) -> Iterator[tuple[str, DeviceAttribute]]:
    for name, value in _mapping(given, "attributes", "{ATTRIBUTE: value}").items():
        if not _matches(_ATTRIBUTE, name):
            raise _FieldError(f"attributes: found {_quoted(name)}, expected the name of an attribute")
        made = _attribute(value)
        if made is None:
            expected = "a text of up to 64 characters, a number, true, false or {version: 1.2.3}"
            raise _FieldError(f"attributes: {name}: found {_quoted(value)}, expected {expected}")
        yield name, made


def _attribute(given: Any) -> DeviceAttribute | None:
    match given:
        case bool():
            return DeviceAttribute(bool_=given)
        case int() if -_INT64 <= given < _INT64:
            return DeviceAttribute(int_=given)
        case str() if 0 < len(given) <= _MOST_TEXT:
            return DeviceAttribute(string=given)
        case {"version": str() as text} if len(given) == 1 and len(text) <= _MOST_TEXT and _matches(_VERSION, text):
            return DeviceAttribute(version=text)
    return None


def _capacity(given: Any) -> Iterator[tuple[str, DeviceCapacity]]:
    for name, amount in _mapping(given, "capacity", "{CAPACITY: quantity}").items():
        if not _matches(_ATTRIBUTE, name):
            raise _FieldError(f"capacity: found {_quoted(name)}, expected the name of a capacity")
        yield name, DeviceCapacity(value=_quantity(amount, f"capacity: {name}"))


def _after_s(given: Any) -> float:
    if given is None:
        return USUAL_AFTER_S
    try:
        after_s = go_duration(given if isinstance(given, str) else "")
    except Unfit:
        after_s = -1.0
    if not 0.0 <= after_s <= _MOST_S:
        raise _FieldError(f"after: found {_quoted(given)}, expected a duration up to 24h, such as 4m")
    return after_s


def _matches(pattern: re.Pattern[str], given: Any) -> bool:
    return isinstance(given, str) and pattern.fullmatch(given) is not None


def _plain(given: Any) -> str:
    return given[:_SHOWN] if isinstance(given, str) and given.isprintable() else _quoted(given)


def _quoted(given: Any) -> str:
    """A value as JSON, cut off where it is long."""
    try:
        text = msgspec.json.encode(given).decode()
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        text = str(type(given).__name__)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
