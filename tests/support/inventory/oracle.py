"""The definition of the best partition, written out by brute force: what the fast search is judged by."""

from collections.abc import Iterator, Sequence
from itertools import combinations

Partition = tuple[tuple[int, ...], ...]


def partitions(available: Sequence[int], size: int) -> Iterator[Partition]:
    """Every way to divide ``available`` into sets of ``size`` with at most one smaller set for the remainder."""
    if not available:
        yield ()
        return
    low, rest = available[0], available[1:]
    remainder = len(available) % size
    for width in {size, remainder} - {0}:
        for others in combinations(rest, width - 1):
            left = [gpu for gpu in rest if gpu not in others]
            # A second remainder cannot arise: what is left then divides evenly.
            for tail in partitions(left, size):
                yield ((low, *others), *tail)


def set_score(scores: Sequence[Sequence[int]], chosen: Sequence[int]) -> int:
    return sum(scores[a][b] for a, b in combinations(chosen, 2))


def best(
    scores: Sequence[Sequence[int]], available: Sequence[int], required: Sequence[int], size: int
) -> tuple[int, int, tuple[int, ...]]:
    """(partition score, set score, the set) of the right answer: highest, then highest, then lowest indexes."""
    answers = [
        (-sum(set_score(scores, part) for part in partition), -set_score(scores, chosen), chosen)
        for partition in partitions(sorted(available), size)
        for chosen in partition
        if len(chosen) == size and set(required) <= set(chosen)
    ]
    partition_score, score, chosen = min(answers)
    return -partition_score, -score, chosen


def reached(scores: Sequence[Sequence[int]], available: Sequence[int], chosen: Sequence[int]) -> int:
    """The best score of a partition that holds the set ``chosen``."""
    left = sorted(set(available) - set(chosen))
    rest = max(sum(set_score(scores, part) for part in partition) for partition in partitions(left, len(chosen)))
    return set_score(scores, chosen) + rest
