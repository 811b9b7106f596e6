"""Translates parts of GPUs, as KAI's annotations and HAMi's resources request them, into percents: in Python and in
CEL.

The API server translates with MutatingAdmissionPolicies if it has them, else it calls the controller's webhook. In CEL
``POD`` stands for the pod or the template, ``BASE`` for the path to it, ``STEP`` for the granularity of the fleet.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from controller.foreign.rules.ruled import listed
from controller.jobs.framework.raw import JobError, Json, mapping, sequence, shown, strings, text
from controller.jobs.rules import cel
from controller.objects.meta import Struct
from controller.objects.quantity import QuantityError, parse_quantity
from inventory.api.names import GPU_PERCENT, GPU_PERCENT_DEVICES

FRACTION: Final = "gpu-fraction"
MEMORY: Final = "gpu-memory"
DEVICES: Final = "gpu-fraction-num-devices"
CONTAINER: Final = "gpu-fraction-container-name"
PRODUCT: Final = "nvidia.com/gpu.product"
_GPU: Final = "nvidia.com/gpu"
_CORES, _MEMORY, _MEMORY_PERCENT = "nvidia.com/gpucores", "nvidia.com/gpumem", "nvidia.com/gpumem-percentage"
HAMI: Final = (_CORES, _MEMORY, _MEMORY_PERCENT)
_GONE: Final = (_GPU, *HAMI)
"""Resources that are removed from a container when it requests percents in place of HAMi's resources."""
MOST_CONTAINERS: Final = 16
"""The number of containers that are translated."""

WHOLE: Final = "^([1-9]|[1-5][0-9]|6[0-4])$"
"""A number of GPUs, as a pattern for Python and for RE2."""
_PART: Final = r"^(0?\.[0-9]+|1(\.0*)?)$"
_MIB: Final = "^[1-9][0-9]{0,7}$"
_NO_REQUEST: Final = 0.999999
"""The fraction of a percent that counts as one: parts are rounded up to a whole percent, and a rounding error of binary
fractions below a millionth is no request."""


class Fleet(Struct, frozen=True, kw_only=True):
    """The GPUs of a fleet. ``granularity``: percents are multiples of it. ``memory_mib``: of one GPU, by the label of
    its product.
    """

    granularity: int = 1
    memory_mib: Mapping[str, int] = {}


def translation(pod: Json, fleet: Fleet, base: str = "") -> list[Json]:
    """The JSON patch (RFC 6902) for a pod, or a template at the path ``base``; empty if no part is requested.

    Raises JobError for an object that is no pod.
    """
    notes = strings(pod, "metadata", "annotations")
    (containers, limits), (inits, of_inits) = (_with_limits(pod, key, MOST_CONTAINERS) for key in _LISTS)
    if not limits or not ({FRACTION, MEMORY} & notes.keys() or any(_shares(each) for each in limits)):
        return []
    memory_mib = _memory_mib(strings(pod, "spec", "nodeSelector").get(PRODUCT, ""), fleet)
    kai = 0 if any(GPU_PERCENT in each for each in (*limits, *of_inits)) else _of_annotations(notes, memory_mib)
    devices = notes.get(DEVICES, "1")
    gpus = int(devices) if kai > 0 and _is(WHOLE, devices) else 1
    named = notes.get(CONTAINER, text(containers[0], "name"))
    operations = []
    shares = [_of_resources(limit, memory_mib) for limit in limits]
    for key, listed_, own_limits, hami in (
        ("containers", containers, limits, shares),
        ("initContainers", inits, of_inits, [0] * len(inits)),
    ):
        for index, (container, limit, share) in enumerate(zip(listed_, own_limits, hami, strict=True)):
            asked = share if share > 0 else kai if text(container, "name") == named else 0
            if asked > 0:
                requests = mapping(container, "resources", "requests")
                amount = -(-asked // fleet.granularity) * fleet.granularity * gpus
                operations += _asking(
                    f"{base}/spec/{key}/{index}/resources", limit, requests, amount, replaces=share > 0
                )
    if gpus > 1:
        operations.append({"op": "add", "path": base + _SPREAD, "value": str(gpus)})
    return operations


def refusal(pod: Json) -> str:
    """Why the API server refuses a pod after its translation, as the chart's policies say it; empty if it does not.

    The reasons are requests that cannot be translated, a part beside whole GPUs of any container, ``nvidia.com/gpu: 0``
    as well, and a part requested twice, as in KAI's webhook (``ValidateGpuRequests`` of its binder and admission).

    Raises JobError for an object that is no pod.
    """
    notes, (own, inits) = strings(pod, "metadata", "annotations"), (_with_limits(pod, key) for key in _LISTS)
    containers, limits = [*own[0], *inits[0]], [*own[1], *inits[1]]
    is_translated = any(GPU_PERCENT in each for each in limits)
    asks, named = not {FRACTION, MEMORY}.isdisjoint(notes), notes.get(CONTAINER)
    if asks and not is_translated and named is not None and all(text(each, "name") != named for each in containers):
        return f'{CONTAINER}: found "{named}", expected the name of a container'
    part = FRACTION if FRACTION in notes else MEMORY
    if asks and any(_GPU in each for each in limits):
        return f'{part}: found "{notes[part]}" beside {_GPU}, expected a part of a GPU or whole ones'
    if {FRACTION, MEMORY} <= notes.keys():
        return f'{MEMORY}: found "{notes[MEMORY]}" beside {FRACTION}, expected one of the two'
    if FRACTION in notes and not _is(_SOME_PART, notes[FRACTION]):
        return f'{FRACTION}: found "{notes[FRACTION]}", expected a part of one GPU such as "0.3"'
    if not _is(WHOLE, notes.get(DEVICES, "1")):
        return f'{DEVICES}: found "{notes[DEVICES]}", expected a whole number from 1 to 64'
    if DEVICES in notes and not asks:
        return f"{DEVICES}: found without {FRACTION} and {MEMORY}, expected one of them beside it"
    if MEMORY in notes and not is_translated:
        return f'{MEMORY}: found "{notes[MEMORY]}" and no GPU that it is a part of: {_SELECT_ONE}'
    shares = [each for each in limits if _shares(each)]
    if any(_integer(each, _GPU, "1") > 1 for each in shares):
        return "nvidia.com/gpucores, gpumem: a share lies on one GPU here: ask for nvidia.com/gpu: 1"
    return _UNKNOWN if shares else ""


_LISTS: Final = ("containers", "initContainers")


def _with_limits(pod: Json, key: str, most: int | None = None) -> tuple[list[Json], list[Json]]:
    """The containers of one list, and the limits of each. Raises JobError."""
    found = sequence(pod, "spec", key)[:most]
    return found, [mapping({"container": each}, "container", "resources", "limits") for each in found]


_SOME_PART: Final = r"^(0?\.[0-9]*[1-9][0-9]*|1(\.0*)?)$"
_SELECT_ONE: Final = (
    "give MiB, and, where the fleet has several products, select one by the node label nvidia.com/gpu.product"
)
_UNKNOWN: Final = (
    "nvidia.com/gpumem: no GPU is known that it is a part of: where the fleet has several products, select one by the "
    "node label nvidia.com/gpu.product"
)


def _is(pattern: str, value: str) -> bool:
    return re.fullmatch(pattern, value) is not None


def _shares(limits: Json) -> bool:
    return not limits.keys().isdisjoint(HAMI)


def _memory_mib(product: str, fleet: Fleet) -> int:
    """The memory in MiB of the GPU that an amount of memory is a part of; 0 if it is not known."""
    if not product and len(fleet.memory_mib) == 1:
        (only,) = fleet.memory_mib.values()
        return only
    return fleet.memory_mib.get(product, 0)


def _of_annotations(notes: Mapping[str, str], memory_mib: int) -> int:
    """The percents of each GPU that annotations request."""
    if _is(_PART, notes.get(FRACTION, "")):
        return int(float(notes[FRACTION]) * 100.0 + _NO_REQUEST)
    if _is(_MIB, notes.get(MEMORY, "")) and memory_mib > 0:
        return _parts(int(notes[MEMORY]), memory_mib)
    return 0


def _of_resources(limits: Json, memory_mib: int) -> int:
    """The percents that resources request: the larger of cores and memory; 0 for a share of several GPUs, and of an
    unknown GPU.
    """
    if not _shares(limits) or _integer(limits, _GPU, "1") != 1 or (_MEMORY in limits and memory_mib == 0):
        return 0
    memory = _parts(_integer(limits, _MEMORY, "0"), memory_mib) if _MEMORY in limits else 0
    return max(_integer(limits, _CORES, "0"), _integer(limits, _MEMORY_PERCENT, "0"), memory)


def _parts(mib: int, memory_mib: int) -> int:
    return -(-mib * 100 // memory_mib)


def _integer(limits: Json, name: str, default: str) -> int:
    try:
        amount = parse_quantity(limits.get(name, default)).fraction
    except QuantityError as error:
        raise JobError(f"resources.limits[{name}]: {error}") from None
    if amount.denominator != 1:
        raise JobError(f"resources.limits[{name}]: expected a whole number, found {shown(limits[name])}")
    return amount.numerator


def _asking(at: str, limits: Json, requests: Json, percents: int, *, replaces: bool) -> list[Json]:
    both = (("limits", limits), ("requests", requests))
    gone = [
        {"op": "remove", "path": at + cel.pointer(name, key)}
        for name, found in both
        for key in _GONE
        if replaces and key in found
    ]
    empty = [{"op": "add", "path": at + cel.pointer(name), "value": {}} for name, found in both if not found]
    asked = [{"op": "add", "path": at + cel.pointer(name, GPU_PERCENT), "value": str(percents)} for name, _ in both]
    return [*gone, *empty, *asked]


_SPREAD: Final = cel.pointer("metadata", "annotations", GPU_PERCENT_DEVICES)


# The translation above, in CEL.

_CONTAINERS: Final = "(POD.?spec.?containers.orValue(null) == null ? [] : POD.spec.containers)"
"""Before validation the API server shows a pod without any as ``containers: null``, and a template that is missing as
an empty one.
"""
SHARES: Final = f"{listed(HAMI)}.exists(k, k in l)"
"""Whether limits ``l`` have a resource of HAMi, in CEL."""
ASKS: Final = (
    f"{listed((FRACTION, MEMORY))}.exists(k, k in POD.?metadata.?annotations.orValue({{}})) || "
    f"{_CONTAINERS}.exists(c, [c.?resources.?limits.orValue({{}})].exists(l, {SHARES}))"
)
_AMOUNT: Final = "quantity(string(l[?'{0}'].orValue(null) == null ? '{1}' : l['{0}'])).asInteger()"
_PARTS: Final = "({0} * 100 + variables.memory - 1) / variables.memory"


def _note(name: str, default: str = "''") -> str:
    return f"variables.annotations[?'{name}'].orValue({default})"


VARIABLES: Final = {
    "annotations": "POD.?metadata.?annotations.orValue({})",
    "containers": _CONTAINERS,
    "limits": "variables.containers.map(c, c.?resources.?limits.orValue({}))",
    "requests": "variables.containers.map(c, c.?resources.?requests.orValue({}))",
    "inits": "POD.?spec.?initContainers.orValue([])",
    "initLimits": "variables.inits.map(c, c.?resources.?limits.orValue({}))",
    "initRequests": "variables.inits.map(c, c.?resources.?requests.orValue({}))",
    "indexes": f"{list(range(MOST_CONTAINERS))}.filter(i, i < size(variables.containers))",
    "sizes": "params.?data.orValue({})",
    "product": f"POD.?spec.?nodeSelector[?'{PRODUCT}'].orValue('')",
    "memory": (
        "variables.product in variables.sizes ? int(variables.sizes[variables.product]) : "
        "(variables.product == '' && size(variables.sizes) == 1 ? "
        "int(variables.sizes.map(k, variables.sizes[k])[0]) : 0)"
    ),
    "kai": (
        f"(variables.limits + variables.initLimits).exists(l, '{GPU_PERCENT}' in l) ? 0 : "
        f"{_note(FRACTION)}.matches({cel.quoted(_PART)}) ? "
        f"int(double(variables.annotations['{FRACTION}']) * 100.0 + {_NO_REQUEST}) : "
        f"{_note(MEMORY)}.matches({cel.quoted(_MIB)}) && variables.memory > 0 ? "
        + _PARTS.format(f"int(variables.annotations['{MEMORY}'])")
        + " : 0"
    ),
    "devices": _note(DEVICES, "'1'"),
    "gpus": f"variables.kai > 0 && variables.devices.matches('{WHOLE}') ? int(variables.devices) : 1",
    "named": _note(CONTAINER, "variables.containers[?0].?name.orValue('')"),
    "hami": (
        f"variables.limits.map(l, !{SHARES} || {_AMOUNT.format(_GPU, 1)} != 1 || "
        f"('{_MEMORY}' in l && variables.memory == 0) ? 0 : [{_AMOUNT.format(_CORES, 0)}, "
        f"{_AMOUNT.format(_MEMORY_PERCENT, 0)}, "
        f"'{_MEMORY}' in l ? {_PARTS.format(_AMOUNT.format(_MEMORY, 0))} : 0].max())"
    ),
    "percents": (
        "variables.indexes.map(i, variables.hami[i] > 0 ? variables.hami[i] : "
        "variables.containers[i].name == variables.named ? variables.kai : 0)"
        ".map(p, (p + STEP - 1) / STEP * STEP * variables.gpus)"
    ),
    "initIndexes": (
        f"{list(range(MOST_CONTAINERS))}.filter(i, i < size(variables.inits) && variables.kai > 0 && "
        "variables.inits[i].name == variables.named)"
    ),
    "part": "(variables.kai + STEP - 1) / STEP * STEP * variables.gpus",
}
"""Variables in CEL; each uses those before it. ``params.data``: MiB of one GPU by its product, as texts."""

_AT: Final = "'BASE/spec/{0}/' + string(i) + '/resources{1}'"
_NAMES: Final = ("limits", "requests")


def _removed(name: str) -> str:
    path = f"{_AT.format('containers', f'/{name}/')} + k.replace('/', '~1')"
    return f"{listed(_GONE)}.filter(k, k in variables.{name}[i]).map(k, JSONPatch{{op: 'remove', path: {path}}})"


def _asked(key: str, resources: tuple[str, str], percents: str) -> str:
    """The operations by which container ``i`` of a list requests percents; ``resources``: its limits and requests."""
    parts = [
        f"(size(variables.{of}[i]) == 0 ? [{cel.added(_AT.format(key, f'/{name}'), '{}')}] : [])"
        for name, of in zip(_NAMES, resources, strict=True)
    ]
    asked = ", ".join(
        cel.added(_AT.format(key, cel.pointer(name, GPU_PERCENT)), f"string({percents})") for name in _NAMES
    )
    return " + ".join([*parts, f"[{asked}]"])


def _patch() -> str:
    gone = f"(variables.hami[i] > 0 ? {' + '.join(map(_removed, _NAMES))} : [])"
    own = f"{gone} + {_asked('containers', _NAMES, 'variables.percents[i]')}"
    of_init = _asked("initContainers", ("initLimits", "initRequests"), "variables.part")
    spread = cel.added(cel.quoted(f"BASE{_SPREAD}"), "string(variables.gpus)")
    each = f"variables.indexes.filter(i, variables.percents[i] > 0).map(i, {own}).flatten()"
    inits = f"variables.initIndexes.map(i, {of_init}).flatten()"
    return f"{each} + {inits} + (variables.gpus > 1 ? [{spread}] : [])"


PATCH: Final = _patch()


def in_cel() -> dict[str, Any]:
    """The parts of the chart's policies and of its webhook's configuration."""
    variables = [{"name": name, "expression": expression} for name, expression in VARIABLES.items()]
    return {
        "whole": cel.quoted(WHOLE),
        "hami": listed(HAMI),
        "asks": ASKS,
        "variables": variables,
        "patch": PATCH,
    }
