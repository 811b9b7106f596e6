"""Topology assignments: a plain list of domains in memory, the API's compressed slices on the wire.

A slice writes each level's values as one shared value, or as prefix + root + suffix. An assignment is one slice, or one
for each run of neighbouring domains whose host names agree up to the last "-", whichever is shorter as JSON. The order
of the domains is kept, so reading gives back exactly what was written.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

import msgspec

from controller.objects.workload import (
    LevelRoots,
    LevelValues,
    SlicePodCounts,
    TopologyAssignment,
    TopologyAssignmentSlice,
)

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
MAX_SLICES: Final = 1000
MAX_DOMAINS_PER_SLICE: Final = 100_000


class Domain(NamedTuple):
    """``pods`` pods in the domain named by ``values``, one for each level of the assignment."""

    values: tuple[str, ...]
    pods: int


class TopologyEncodingError(ValueError):
    """An assignment on the wire contradicts itself, or one in memory does not fit the wire."""


def encode(levels: Sequence[str], domains: Sequence[Domain], *, by_hostname_prefix: bool = True) -> TopologyAssignment:
    """The shorter form of the assignment. ``by_hostname_prefix`` is the gate TASAssignmentsEncodingByHostnamePrefix."""
    levels = tuple(levels)
    if any(len(domain.values) != len(levels) for domain in domains):
        raise TopologyEncodingError(f"a domain has not one value for each of the {len(levels)} levels")
    whole = TopologyAssignment(levels=levels, slices=(_slice(domains),) if domains else ())
    if not (by_hostname_prefix and levels and levels[-1] == HOSTNAME_LABEL and len(domains) > 1):
        return whole
    runs = tuple(_slice(tuple(run)) for _, run in groupby(domains, lambda domain: _host_prefix(domain.values[-1])))
    if len(runs) > MAX_SLICES or len(runs) == 1:
        return whole
    split = TopologyAssignment(levels=levels, slices=runs)
    if len(domains) > MAX_DOMAINS_PER_SLICE:
        return split
    return split if len(msgspec.json.encode(split)) < len(msgspec.json.encode(whole)) else whole


def decode(assignment: TopologyAssignment) -> Iterator[Domain]:
    """The domains in their order. Raises TopologyEncodingError for lists whose lengths do not agree, and for slices
    without levels.
    """
    if assignment.slices and not assignment.levels:
        raise TopologyEncodingError("topologyAssignment.levels: expected at least one")
    for index, part in enumerate(assignment.slices):
        path = f"topologyAssignment.slices[{index}]"
        if len(part.values_per_level) != len(assignment.levels):
            raise TopologyEncodingError(
                f"{path}.valuesPerLevel: expected one for each of {len(assignment.levels)} levels"
            )
        if not 0 <= part.domain_count <= MAX_DOMAINS_PER_SLICE:
            raise TopologyEncodingError(f"{path}.domainCount: expected at most {MAX_DOMAINS_PER_SLICE}")
        columns = [
            _column(values, part.domain_count, f"{path}.valuesPerLevel[{level}]")
            for level, values in enumerate(part.values_per_level)
        ]
        counts = _counts(part.pod_counts, part.domain_count, f"{path}.podCounts")
        for position, count in enumerate(counts):
            yield Domain(tuple(column[position] for column in columns), count)


def hosts(given: TopologyAssignment | None) -> list[str]:
    """The nodes of an assignment; empty for one that contradicts itself or ends above the nodes."""
    if given is None or given.levels[-1:] != (HOSTNAME_LABEL,):
        return []
    try:
        return [domain.values[-1] for domain in decode(given)]
    except TopologyEncodingError:
        return []


def _host_prefix(host: str) -> str:
    return host[: host.rfind("-") + 1]


def _slice(domains: Sequence[Domain]) -> TopologyAssignmentSlice:
    counts = [domain.pods for domain in domains]
    same = counts.count(counts[0]) == len(counts)
    return TopologyAssignmentSlice(
        domain_count=len(domains),
        values_per_level=tuple(map(_level, zip(*(domain.values for domain in domains), strict=True))),
        pod_counts=SlicePodCounts(universal=counts[0]) if same else SlicePodCounts(individual=tuple(counts)),
    )


def _level(values: tuple[str, ...]) -> LevelValues:
    """One value if all agree; else the longest common suffix, and the longest prefix beside it in every value."""
    if values.count(values[0]) == len(values):
        return LevelValues(universal=values[0])
    suffix = _common_prefix([value[::-1] for value in values])[::-1]
    heads = [value[: len(value) - len(suffix)] for value in values]
    prefix = _common_prefix(heads)
    return LevelValues(
        individual=LevelRoots(prefix=prefix, suffix=suffix, roots=tuple(head[len(prefix) :] for head in heads))
    )


def _common_prefix(values: Sequence[str]) -> str:
    """The common prefix of all values, from the smallest and the largest: every other value lies between them and
    shares it.
    """
    low, high = min(values), max(values)
    length = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    return low[:length]


def _column(values: LevelValues, count: int, path: str) -> Sequence[str]:
    if values.individual is None:
        if values.universal is None:
            raise TopologyEncodingError(f"{path}: neither universal nor individual is set")
        return [values.universal] * count
    if len(values.individual.roots) != count:
        raise TopologyEncodingError(f"{path}.individual.roots: expected {count}, found {len(values.individual.roots)}")
    prefix, suffix = values.individual.prefix, values.individual.suffix
    return [prefix + root + suffix for root in values.individual.roots]


def _counts(counts: SlicePodCounts, count: int, path: str) -> Sequence[int]:
    if counts.universal is not None:
        return [counts.universal] * count
    if len(counts.individual) != count:
        raise TopologyEncodingError(f"{path}.individual: expected {count}, found {len(counts.individual)}")
    return counts.individual
