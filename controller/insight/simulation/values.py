"""Values that the API server does not take for their field: by its types, and by its checks of pods' resources.

Sources: the types in ``fields.json``; Kubernetes' ``ValidateResourceQuantityValue`` (a resource with its own domain is
requested in whole numbers), ``ValidateContainerResourceName``, and the grammar of quantities.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import msgspec

from controller.insight.simulation.fields import POD_SPEC, REQUIREMENTS, typed
from controller.insight.simulation.problems import listed, meant, nearest, shown
from controller.insight.simulation.sources import Path_
from controller.objects.quantity import NANO, Quantity, QuantityError, parse_quantity
from inventory.api.names import GPU_PERCENT
from inventory.words.catalog import plural

_STANDARD: Final = ("cpu", "memory", "ephemeral-storage")
_LIKELY: Final = (*_STANDARD, "nvidia.com/gpu")
_PAGES: Final = "hugepages-"
_RESTARTS: Final = ("Always", "OnFailure", "Never")
_OF_JOBS: Final = ("OnFailure", "Never")
_UNIT: Final = re.compile(r"(?P<amount>[0-9.]+)\s*(?P<unit>[kKmMgGtTpPeE])(?P<binary>[iI]?)(?P<byte>[bB]?)", re.ASCII)
_UNITLESS: Final = re.compile(r"[0-9.+-]+", re.ASCII)
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_BOOLEANS: Final = ("true", "false")
_PERCENTS: Final = 100
_COUNTS: Final = frozenset(
    {
        "backoffLimit",
        "backoffLimitPerIndex",
        "completions",
        "maxFailedIndexes",
        "maxReplicas",
        "minAvailable",
        "minReplicas",
        "numOfHosts",
        "parallelism",
        "replicas",
        "size",
        "ttlSecondsAfterFinished",
    }
)
_MOST: Final = 2**31 - 1
_LISTS: Final = ("containers", "initContainers", "resourceClaims", "schedulingGates", "tolerations", "volumes")
"""Fields of a pod's spec that are lists."""
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "int-or-string": (int, str),
}
_SAMPLES: Final = {"string": "a string", "integer": "a whole number", "number": "a number", "boolean": "true or false"}


class Wrong(msgspec.Struct, frozen=True, kw_only=True):
    """A wrong value. ``hint``: what to do, a sentence. ``refused``: whether the API server refuses it; else it is
    likely not meant.
    """

    path: Path_
    found: str
    expected: str
    hint: str = ""
    refused: bool = True


def wrong_values(data: Mapping[str, Any]) -> Iterator[Wrong]:
    """The wrong values of an object, in its own order; none if its kind is not in the table. Nulls are absent
    values.
    """
    of_pods = data.get("kind") != "Workload"
    for path, type_, value in typed(data):
        scalar = type_.removeprefix("#") if type_.startswith("#") else ""
        if "|" in scalar:
            yield from _word(path, scalar.strip("|").split("|"), value)
        elif scalar == "quantity":
            yield from _quantity(path, value)
        elif scalar:
            yield from _scalar(path, scalar, value)
            yield from _count(path, scalar, value)
        elif not isinstance(value, dict):
            expected = "a list" if type_ == "[]" else "an object"
            yield Wrong(path=path, found=_kinded(value), expected=expected, hint="Correct it")
        elif type_ == REQUIREMENTS and of_pods:
            yield from _resources(path, value)
        elif type_ == POD_SPEC:
            yield from _lists(path, value)
            yield from _named_twice(path, value)
            is_of_job = (data.get("apiVersion"), data.get("kind")) == ("batch/v1", "Job")
            yield from _restarts(path, value, _OF_JOBS if is_of_job else _RESTARTS)


def _word(path: Path_, words: Collection[str], value: Any) -> Iterator[Wrong]:
    """The problem of a value that is not one of ``words``."""
    if value not in words:
        near = meant(value, words) if isinstance(value, str) else ""
        expected = f"one of {listed(words)}" if len(words) > 1 else next(iter(words))
        yield Wrong(path=path, found=shown(value), expected=expected, hint=f"Correct it.{near}".removesuffix("."))


def _scalar(path: Path_, type_: str, value: Any) -> Iterator[Wrong]:
    if isinstance(value, bool):
        fits = type_ == "boolean"
    elif type_ == "integer" and isinstance(value, float):
        fits = value.is_integer()
    else:
        fits = isinstance(value, _TYPES[type_])
    if not fits:
        expected, hint = _in_place(type_, value)
        yield Wrong(path=path, found=_kinded(value), expected=expected, hint=hint)


def _in_place(type_: str, value: Any) -> tuple[str, str]:
    """What was likely meant, and how it is written."""
    if type_ == "string" and isinstance(value, bool | int | float):
        return f'"{shown(value)}" (a string)', "Put it in quotes"
    if type_ == "integer" and isinstance(value, str) and _WHOLE.fullmatch(value):
        return value, "Write it without quotes"
    if type_ == "boolean" and isinstance(value, str) and value.lower() in _BOOLEANS:
        return value.lower(), "Write it without quotes"
    return _SAMPLES.get(type_, "a whole number or a string"), "Correct it"


def _count(path: Path_, type_: str, value: Any) -> Iterator[Wrong]:
    """The problem of a count that Kubernetes and the operators refuse because it is negative, or has more than 32
    bits.
    """
    is_number = type_ == "integer" and isinstance(value, int) and not isinstance(value, bool)
    if is_number and path[-1] in _COUNTS and not 0 <= value <= _MOST:
        expected = "at least 0" if value < 0 else f"at most {_MOST}"
        yield Wrong(path=path, found=shown(value), expected=expected, hint="Correct it")


def _kinded(value: Any) -> str:
    return f"{shown(value)} (a string)" if isinstance(value, str) else shown(value)


def _quantity(path: Path_, value: Any) -> Iterator[Wrong]:
    try:
        parse_quantity(value)
    except QuantityError:
        is_device = _is_device(str(path[-1]))
        expected = _with_unit(value) or ("a whole number" if is_device else "a number such as 4, 500m or 16Gi")
        yield Wrong(path=path, found=shown(value), expected=expected, hint="Correct it")


def _with_unit(value: Any) -> str:
    """The amount that was likely meant by a wrong unit: ``16G or 16Gi`` for ``16GB``; empty if there is none."""
    match = _UNIT.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        return ""
    amount, large = match["amount"], match["unit"].upper()
    decimal = f"{amount}{'k' if large == 'K' else large}"
    return f"{amount}{large}i" if match["binary"] else f"{decimal} or {amount}{large}i"


def _resources(path: Path_, value: Mapping[str, Any]) -> Iterator[Wrong]:
    """The problems with the resources of one container."""
    for part in ("limits", "requests"):
        amounts = value.get(part)
        for name, written in amounts.items() if isinstance(amounts, dict) else ():
            where = (*path, part, str(name))
            if "/" not in str(name) and name not in _STANDARD and not str(name).startswith(_PAGES):
                yield _unnamed(where, str(name))
                continue
            try:
                amount = parse_quantity(written) if written is not None else None
            except QuantityError:
                continue
            if amount is not None:
                yield from _amount(where, str(name), written, amount)
    yield from _beside_limits(path, value)


def _beside_limits(path: Path_, value: Mapping[str, Any]) -> Iterator[Wrong]:
    """Problems of requests beside limits: a request is at most its limit; for devices, which are never overcommitted,
    it equals its limit.
    """
    limits, requests = (
        {} if not isinstance(each := value.get(part), dict) else each for part in ("limits", "requests")
    )
    for name, written in requests.items():
        asked, limit = _read(written), _read(limits.get(name))
        where, is_device = (*path, "requests", str(name)), _is_device(str(name))
        if asked is None or asked.nanos < 0 or (limit is None and limits.get(name) is not None):
            continue
        if limit is None and is_device:
            limit_is = f"limits[{name}]: {written} beside it"
            hint = "Write it as a limit: Kubernetes makes it the request too"
            yield Wrong(path=where, found="no limit", expected=limit_is, hint=hint)
        elif limit is not None and (asked.nanos != limit.nanos if is_device else asked.nanos > limit.nanos):
            most = "its limit" if is_device else "at most its limit"
            yield Wrong(
                path=where, found=shown(written), expected=f"{most}, {limits[name]}", hint="Correct one of them"
            )


def _read(given: Any) -> Quantity | None:
    try:
        return None if given is None else parse_quantity(given)
    except QuantityError:
        return None


def _is_device(name: str) -> bool:
    return ("/" in name and "kubernetes.io/" not in name) or name.startswith(_PAGES)


def _unnamed(where: Path_, name: str) -> Wrong:
    """The problem of a resource without a domain that Kubernetes does not know."""
    known = {each.rpartition("/")[2]: each for each in _LIKELY}
    near = known.get(nearest(name, known), "")
    return Wrong(
        path=where,
        found=f"the resource {name[:63]}",
        expected=near or f"{listed(_STANDARD)}, or a name with its domain such as nvidia.com/gpu",
        hint="Correct the name",
    )


def _amount(where: Path_, name: str, given: Any, amount: Quantity) -> Iterator[Wrong]:
    if amount.nanos < 0:
        yield Wrong(path=where, found=shown(given), expected="at least 0", hint="Correct it")
    elif name.startswith(_PAGES) or not _is_device(name):
        return
    elif amount.nanos % NANO:
        yield Wrong(path=where, found=shown(given), expected="a whole number", hint=_of_a_part(name, amount))
    elif isinstance(given, str) and not _UNITLESS.fullmatch(given):
        yield Wrong(
            path=where,
            found=shown(given),
            expected="a count without a unit, such as 1",
            hint=f"It asks for {plural(amount.value, 'device')}",
            refused=False,
        )


def _of_a_part(name: str, amount: Quantity) -> str:
    if "gpu" not in name:
        return f"Parts of {name[:63]} cannot be asked for"
    percents = max(1, round(amount.nanos * _PERCENTS / NANO))
    asked = f"{GPU_PERCENT}: {percents}" if percents < _PERCENTS else GPU_PERCENT
    return f"A part of a GPU is asked for with {asked} in its place"


def _lists(path: Path_, spec: Mapping[str, Any]) -> Iterator[Wrong]:
    """Problems of lists in a pod's spec: the table does not tell a list of objects from an object."""
    for key in _LISTS:
        if spec.get(key) is not None and not isinstance(spec[key], list):
            yield Wrong(path=(*path, key), found=_kinded(spec[key]), expected="a list", hint="Begin each item with -")


def _named_twice(path: Path_, spec: Mapping[str, Any]) -> Iterator[Wrong]:
    """Problems of names of a pod's containers: each is used once, among init containers too
    (``validateContainers``).
    """
    seen: set[str] = set()
    for key in ("initContainers", "containers"):
        given = spec.get(key)
        for at, each in enumerate(given if isinstance(given, list) else ()):
            name = each.get("name") if isinstance(each, dict) else None
            if isinstance(name, str) and name in seen:
                found, expected = f"{shown(name)} a second time", "another name: a container of the pod has it"
                yield Wrong(path=(*path, key, at, "name"), found=found, expected=expected, hint="Correct it")
            elif isinstance(name, str):
                seen.add(name)


def _restarts(path: Path_, spec: Mapping[str, Any], words: Collection[str]) -> Iterator[Wrong]:
    """The problem of a Job's ``restartPolicy``: its pods may not run for ever, as they would by default
    (``validateJobTemplate``).
    """
    found = spec.get("restartPolicy")
    if isinstance(found, str):
        yield from _word((*path, "restartPolicy"), words, found)
    elif found is None and "Always" not in words:
        yield Wrong(path=(*path, "restartPolicy"), found="nothing", expected=f"one of {listed(words)}", hint="Write it")
