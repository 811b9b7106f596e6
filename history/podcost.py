"""The cost of one pod by its own spec, in 10**-9 units of each resource.

A limit without a request is one. Init containers run one after another beside the sidecars that were started before
them (KEP 753), so the pod needs the larger of that peak and of what keeps running. Resources of the pod as a whole
stand in place of its containers' for cpu, memory and huge pages; its limit alone does where no container requests any
(KEP 2837). Overhead comes on top.
"""

import re
from collections.abc import Mapping
from typing import Final

from history import objects as api
from history.objects import Json

Cost = dict[str, int]
UNIT: Final = 10**9
_QUANTITY: Final = re.compile(
    r"([+-]?)(\d{0,30})(?:\.(\d{0,30}))?(?:[eE]([+-]?\d{1,2})|([KMGTPE]i)|([numkMGTPE]))?", re.ASCII
)
_BINARY: Final = {f"{letter}i": 1024 ** (power + 1) for power, letter in enumerate("KMGTPE")}
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_LARGEST: Final = 10**30
_POD_LEVEL: Final = ("cpu", "memory")


def quantity(found: object) -> int | None:
    """A quantity in 10**-9 units, rounded up; None where ``found`` is none."""
    if isinstance(found, int) and not isinstance(found, bool):
        return found * UNIT if abs(found) < _LARGEST else None
    matched = _QUANTITY.fullmatch(str(found)) if isinstance(found, str | float) else None
    if matched is None or not (matched[2] or matched[3]):
        return None
    fraction = matched[3] or ""
    digits = int((matched[2] or "0") + fraction) * _BINARY.get(matched[5] or "", 1)
    power = 9 - len(fraction) + int(matched[4] or 0) + _DECIMAL.get(matched[6] or "", 0)
    amount: int = digits * 10**power if power >= 0 else -(-digits // 10**-power)
    return -amount if matched[1] == "-" else amount


def amounts(found: Json) -> Cost:
    """Those that can be read."""
    read = {str(name): quantity(amount) for name, amount in found.items()}
    return {name: amount for name, amount in read.items() if amount is not None}


def pod_cost(spec: Json) -> Cost:
    """The cost of a pod without its claims."""
    running, sidecars, peak = Cost(), Cost(), Cost()
    for container in api.rows(spec, "containers"):
        add(running, _asked(container))
    for container in api.rows(spec, "initContainers"):
        asked = _asked(container)
        if container.get("restartPolicy") == "Always":
            add(running, asked)
            add(sidecars, asked)
            _most(peak, sidecars)
        else:
            needed = dict(sidecars)
            add(needed, asked)
            _most(peak, needed)
    _most(running, peak)
    requests = api.inner(spec, "resources", "requests")
    for name, amount in _asked(spec).items():
        if name.startswith("hugepages-") or (name in _POD_LEVEL and (name in requests or name not in running)):
            running[name] = amount
    add(running, amounts(api.inner(spec, "overhead")))
    return {name: amount for name, amount in running.items() if amount > 0}


def _asked(container: Json) -> Cost:
    given = api.inner(container, "resources")
    return {**amounts(api.inner(given, "limits")), **amounts(api.inner(given, "requests"))}


def add(total: Cost, more: Mapping[str, int]) -> None:
    """Add ``more`` to ``total`` itself."""
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _most(total: Cost, other: Mapping[str, int]) -> None:
    for name, amount in other.items():
        total[name] = max(total.get(name, amount), amount)


def claim_cost(spec: Json, classes: Mapping[str, str]) -> Cost:
    """Devices that a claim's ``spec`` asks for, charged as ``classes`` says. Of alternatives the least that one of them
    takes: no more is certain before it is allocated. ``All`` says no number.
    """
    total: Cost = {}
    for request in api.rows(spec, "devices", "requests"):
        choices = [_devices(each, classes) for each in api.rows(request, "firstAvailable")]
        if choices:
            common = set(choices[0]).intersection(*choices)
            add(total, {name: min(each[name] for each in choices) for name in common})
        else:
            add(total, _devices(api.inner(request, "exactly") or request, classes))
    return total


def _devices(request: Json, classes: Mapping[str, str]) -> Cost:
    resource = classes.get(api.text(request, "deviceClassName"))
    if resource is None or request.get("adminAccess") is True or request.get("allocationMode") == "All":
        return {}
    return {resource: max(0, api.whole(request, "count", default=1)) * UNIT}


def claim_names(spec: Json) -> tuple[list[str], list[str]]:
    """The claims that a pod's spec names, and the templates of which the pod gets claims of its own."""
    claims = api.rows(spec, "resourceClaims")
    # v1alpha3 and before: under ``source``.
    sources = [each if api.value(each, "source") is None else api.inner(each, "source") for each in claims]
    named = [api.text(each, "resourceClaimName") for each in sources]
    made = [api.text(each, "resourceClaimTemplateName") for each in sources]
    return [name for name in named if name], [name for name in made if name]
