"""Which sets count as alike, and that being alike never joins sets that score differently."""

from itertools import permutations

from hypothesis import given, settings

from inventory.links import ScoreMatrix
from inventory.preference.partition import ScoreTable
from inventory.preference.symmetry import canonical_masks, modules
from tests.support.inventory.builders import boxes, matrix, score_matrices


def kinds(scores: ScoreMatrix) -> int:
    canonical = canonical_masks(scores)
    return 2 ** len(scores) if canonical is None else len(set(canonical))


def automorphisms(scores: ScoreMatrix) -> list[tuple[int, ...]]:
    n = range(len(scores))
    return [p for p in permutations(n) if all(scores[p[i]][p[j]] == scores[i][j] for i in n for j in n)]


def moved(mask: int, permutation: tuple[int, ...]) -> int:
    return sum(1 << permutation[i] for i in range(len(permutation)) if mask >> i & 1)


@settings(max_examples=30, deadline=None)
@given(boxes(max_gpus=6))
def test_sets_of_one_kind_are_moved_onto_each_other_by_a_symmetry_of_the_links(scores: ScoreMatrix) -> None:
    canonical = canonical_masks(scores)
    if canonical is None:
        return
    symmetries = automorphisms(scores)
    for mask, kind in enumerate(canonical):
        assert canonical[kind] == kind
        assert any(moved(mask, symmetry) == kind for symmetry in symmetries)


@settings(max_examples=30, deadline=None)
@given(score_matrices())
def test_sets_of_one_kind_score_alike(scores: ScoreMatrix) -> None:
    canonical = canonical_masks(scores)
    if canonical is not None:
        table = ScoreTable(scores).set_scores
        assert all(table[mask] == table[kind] for mask, kind in enumerate(canonical))


def test_equal_links_leave_one_kind_for_each_count() -> None:
    assert kinds(matrix(16, lambda _i, _j: 610)) == 17


def test_a_regular_16_gpu_box_has_231_kinds_of_sets() -> None:
    assert kinds(matrix(16, lambda i, j: 700 - 10 * (i ^ j).bit_length())) == 231


def test_the_order_of_gpus_does_not_hide_equal_parts() -> None:
    places = [0, 5, 2, 7, 1, 4, 3, 6]
    assert kinds(matrix(8, lambda i, j: (places[i] ^ places[j]).bit_length())) == 21


def test_a_ring_has_no_interchangeable_parts() -> None:
    scores = matrix(6, lambda i, j: 100 if j - i in (1, 5) else i + j)
    assert len(modules(scores)) == 6
    assert canonical_masks(scores) is None
