"""A podset's topology assignment: ``domains[]`` in v1beta1, ``slices[]`` in v1beta2 (reference: Kueue's TAS KEP 2724).

A slice can name 100,000 domains in a few bytes, so the written domains are bounded: an assignment of a real workload
stays far below, and a larger one is an error, never a full memory.
"""

from typing import Final

import msgspec

from controller.objects.conversion.tree import ConversionError, Json, children, kind_of, texts
from controller.objects.decode import DecodeError
from controller.objects.decode import decode as read
from controller.objects.placeencoding import MAX_DOMAINS_PER_SLICE, Domain, TopologyEncodingError, decode, encode
from controller.objects.workload import TopologyAssignment

MAX_VALUES: Final = 400_000
"""The most values, domains times levels, that are written for one podset."""

_INT32_MAX: Final = 2**31 - 1


def to_slices(assignment: Json, path: str) -> None:
    """Converts an assignment from v1beta1 to v1beta2, in place."""
    levels = texts(assignment, "levels", path)
    domains = [
        _domain(one, f"{path}.domains[{index}]", len(levels))
        for index, one in enumerate(children(assignment, "domains", path))
    ]
    if len(domains) > MAX_DOMAINS_PER_SLICE:
        raise ConversionError(f"{path}.domains: found {len(domains)}, expected at most {MAX_DOMAINS_PER_SLICE}")
    assignment.pop("domains", None)
    # The conversion goes through bytes: to_builtins keeps tuples, and raw JSON has lists.
    assignment["slices"] = msgspec.json.decode(msgspec.json.encode(encode(levels, domains).slices))


def to_domains(assignment: Json, path: str) -> None:
    """Converts an assignment from v1beta2 to v1beta1, in place."""
    try:
        typed = read(assignment, TopologyAssignment)
        most = MAX_VALUES // max(len(typed.levels), 1)
        # Domains are counted before they are made: a slice makes its columns whole. A negative count is refused by
        # decode.
        if sum(max(part.domain_count, 0) for part in typed.slices) > most:
            raise ConversionError(f"{path}.slices: expected at most {most} domains of {len(typed.levels)} levels")
        domains = list(decode(typed))
    except (DecodeError, TopologyEncodingError) as error:
        raise ConversionError(f"{path}: {error}") from None
    assignment.pop("slices", None)
    assignment["domains"] = [{"values": list(values), "count": pods} for values, pods in domains]


def _domain(one: Json, path: str, levels: int) -> Domain:
    values = texts(one, "values", path)
    if len(values) != levels:
        raise ConversionError(f"{path}.values: found {len(values)}, expected one for each of {levels} levels")
    count = one.get("count")
    if type(count) is not int or not 0 <= count <= _INT32_MAX:
        found = count if type(count) is int else kind_of(count)
        raise ConversionError(f"{path}.count: found {found}, expected an integer from 0 to {_INT32_MAX}")
    return Domain(tuple(values), count)
