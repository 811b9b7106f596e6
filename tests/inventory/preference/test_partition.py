"""The best partition against brute force, on arbitrary links and on boxes built of equal parts."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inventory.links import ScoreMatrix
from inventory.preference import localsearch
from inventory.preference.partition import Choice, ScoreTable
from inventory.preference.subsets import indexes, mask_of, precedes, subsets
from tests.support.inventory import oracle
from tests.support.inventory.builders import boxes, matrix, random_matrix, score_matrices
from tests.support.seeds import drawn

Question = tuple[ScoreMatrix, list[int], list[int], int]


@st.composite
def questions(draw: st.DrawFn, *, max_gpus: int = 8) -> Question:
    """A matrix, the available GPUs, the required ones of them, and a size."""
    scores = draw(st.one_of(score_matrices(max_gpus=max_gpus), boxes(max_gpus=max_gpus)))
    available = draw(st.lists(st.sampled_from(range(len(scores))), min_size=1, unique=True))
    size = draw(st.integers(1, len(available)))
    required = draw(st.lists(st.sampled_from(available), max_size=size, unique=True))
    return scores, available, required, size


def filled(scores: ScoreMatrix) -> ScoreTable:
    table = ScoreTable(scores)
    for _ in table.fill():
        pass
    return table


def choose(table: ScoreTable, available: list[int], required: list[int], size: int) -> Choice:
    return table.choose(mask_of(available), mask_of(required), size)


@settings(max_examples=40, deadline=None)
@given(questions())
def test_the_answer_is_the_best_set_of_a_best_partition(question: Question) -> None:
    scores, available, required, size = question
    answer = choose(ScoreTable(scores), available, required, size)
    assert answer.exact
    if size == 1 and not required:
        assert indexes(answer.mask)[0] in available
        return
    _, score, chosen = oracle.best(scores, available, required, size)
    assert (answer.set_score, indexes(answer.mask)) == (score, chosen)


@settings(max_examples=30, deadline=None)
@given(questions(max_gpus=9))
def test_a_filled_table_answers_at_once_and_as_a_cold_search_does(question: Question) -> None:
    scores, available, required, size = question
    table = filled(scores)
    assert table.filled
    warm = table.search(mask_of(available), mask_of(required), size)
    assert warm.best.exact
    assert warm.best == choose(ScoreTable(scores), available, required, size)


@settings(max_examples=30, deadline=None)
@given(boxes())
def test_what_is_known_of_one_kind_of_set_holds_for_all_of_its_kind(scores: ScoreMatrix) -> None:
    """Twins: the table filled by kinds equals one in which every set was solved by itself."""
    table, plain = filled(scores), ScoreTable(scores)
    full = (1 << len(scores)) - 1
    for size in range(2, (len(scores) + 1) // 2):
        for _ in plain.optima(size).fill():
            pass
        for count in range(len(scores) - size + 1):
            for mask in subsets(full, count):
                assert table.optima(size).values[mask] == plain.optima(size).values[mask]


@settings(max_examples=30, deadline=None)
@given(questions())
def test_an_answer_is_right_before_it_is_exact_and_never_gets_worse(question: Question) -> None:
    scores, available, required, size = question
    search = ScoreTable(scores).search(mask_of(available), mask_of(required), size)
    reached = []
    done = False
    while not done:
        chosen = indexes(search.best.mask)
        assert len(chosen) == size
        assert set(required) <= set(chosen) <= set(available)
        reached.append(oracle.reached(scores, available, chosen))
        done = search.step()
    reached.append(oracle.reached(scores, available, indexes(search.best.mask)))
    assert all(before <= after for before, after in pairwise(reached))


@settings(max_examples=30, deadline=None)
@given(st.data(), questions(max_gpus=9))
def test_a_request_amid_the_filling_gets_the_same_answer(data: st.DataObject, question: Question) -> None:
    scores, available, required, size = question
    table = ScoreTable(scores)
    filling = table.fill()
    for _ in range(data.draw(st.integers(0, 12))):
        next(filling, None)
    search = table.search(mask_of(available), mask_of(required), size)
    while not search.step():
        next(filling, None)
    for _ in filling:
        pass
    assert search.best == choose(ScoreTable(scores), available, required, size)
    assert search.best == choose(table, available, required, size)


@pytest.mark.explored
@pytest.mark.parametrize("required", [[], [2, 5]])
def test_no_swap_of_two_gpus_improves_the_first_answer(required: list[int]) -> None:
    everyone = range(8)
    for seed in drawn(range(30)):
        scores = random_matrix(8, seed)
        table = ScoreTable(scores)
        chosen = indexes(localsearch.first_set(table.set_scores, 0xFF, mask_of(required), 4))
        left = [gpu for gpu in everyone if gpu not in chosen]
        now = oracle.set_score(scores, chosen) + oracle.set_score(scores, left)
        for mine in set(chosen) - set(required):
            for theirs in left:
                one = [theirs if gpu == mine else gpu for gpu in chosen]
                other = [mine if gpu == theirs else gpu for gpu in left]
                assert oracle.set_score(scores, one) + oracle.set_score(scores, other) <= now, seed


def test_a_deadline_stops_the_search_with_the_best_so_far() -> None:
    table = ScoreTable(matrix(14, lambda i, j: (i * 7919 + j * 104729) % 1000))
    full = (1 << 14) - 1
    asked = []

    def expired() -> bool:
        asked.append(True)
        return len(asked) == 2

    answer = table.choose(full, 0b11, 4, expired=expired)
    assert len(asked) == 2
    assert not answer.exact
    assert answer.mask.bit_count() == 4
    assert answer.mask & 0b11 == 0b11


def test_one_gpu_is_taken_where_the_others_miss_it_least() -> None:
    # 0-1 and 2-3 are bridged, 4 stands alone.
    table = ScoreTable(matrix(5, lambda i, j: 410 if (i, j) in ((0, 1), (2, 3)) else 10))
    assert indexes(choose(table, [0, 1, 2, 3, 4], [], 1).mask) == (4,)
    assert indexes(choose(table, [0, 1, 2, 3], [], 1).mask) == (0,)
    assert indexes(choose(table, [1, 2, 3], [], 1).mask) == (1,)


def test_without_links_the_lowest_indexes_are_taken() -> None:
    table = ScoreTable(matrix(8, lambda _i, _j: 0))
    assert indexes(choose(table, [7, 2, 5, 3], [], 2).mask) == (2, 3)
    assert indexes(choose(filled(table.scores), [7, 2, 5, 3], [5], 2).mask) == (2, 5)


def test_a_pair_is_not_broken_for_an_equal_one() -> None:
    # Taking 0 and 1 (30) would leave 2-3 (0); two pairs of 20 are worth more.
    scores = matrix(4, lambda i, j: {(0, 1): 30, (0, 2): 20, (1, 3): 20}.get((i, j), 0))
    assert indexes(choose(ScoreTable(scores), [0, 1, 2, 3], [], 2).mask) == (0, 2)


@pytest.mark.parametrize("make", [ScoreTable, filled])
def test_of_two_equal_pairs_the_one_with_the_lowest_index_is_taken(make: Callable[[ScoreMatrix], ScoreTable]) -> None:
    table = make(matrix(4, lambda i, j: 110 if i + j == 3 else 10))
    assert indexes(choose(table, [0, 1, 2, 3], [], 2).mask) == (0, 3)


@pytest.mark.parametrize("make", [ScoreTable, filled])
def test_the_remainder_is_never_the_answer_however_well_linked(make: Callable[[ScoreMatrix], ScoreTable]) -> None:
    group = [0, 0, 1, 1, 1, 2, 2, 2]
    table = make(matrix(8, lambda i, j: 0 if group[i] != group[j] else 10 if group[i] else 1000))
    assert indexes(choose(table, list(range(8)), [], 3).mask) == (2, 3, 4)


@pytest.mark.explored
@pytest.mark.parametrize("required", [[], [3]])
def test_swaps_alone_are_not_enough_and_the_search_goes_on(required: list[int]) -> None:
    improved = 0
    for seed in drawn(range(20)):
        table = ScoreTable(random_matrix(10, seed))
        full = (1 << 10) - 1
        cold, first = choose(table, list(range(10)), required, 3), table.search(full, mask_of(required), 3).best
        improved += cold.mask != localsearch.first_set(table.set_scores, full, mask_of(required), 3)
        assert first == cold or not first.exact, seed
        assert cold == choose(filled(table.scores), list(range(10)), required, 3), seed
    assert improved


def test_scores_beyond_32_bits_keep_their_order() -> None:
    scores = matrix(5, lambda i, j: 2**40 + (1 if (i, j) == (3, 4) else 0))
    assert indexes(choose(ScoreTable(scores), [0, 1, 2, 3, 4], [], 2).mask) == (3, 4)


def test_an_8_gpu_node_costs_a_few_kib_and_a_16_gpu_node_under_2_mib() -> None:
    assert filled(matrix(8, lambda i, j: i * j)).memory_bytes <= 4096
    table = ScoreTable(matrix(16, lambda i, j: (i ^ j).bit_length()))
    for _ in table.fill():
        pass
    assert table.memory_bytes <= 2 * 2**20


@pytest.mark.parametrize(
    ("available", "required", "size"),
    [(0b111, 0, 0), (0b111, 0, 4), (0b111, 0b1000, 2), (0b111, 0b11, 1), (0, 0, 1), (0b111, 0, -1)],
)
def test_a_question_without_an_answer_is_refused(available: int, required: int, size: int) -> None:
    with pytest.raises(ValueError, match=f"no set of {size} GPUs"):
        ScoreTable(matrix(4, lambda _i, _j: 10)).search(available, required, size)


@pytest.mark.parametrize(
    ("scores", "complaint"),
    [
        (((0,) * 17,) * 17, "found 17 GPUs, expected at most 16"),
        (((0, 1), (2, 0)), "the score of 0 and 1 is 1"),
        (((0, -1), (-1, 0)), "the score of 0 and 1 is -1"),
        (((0, 1), (1,)), "row 1 of the scores has 1 entries, expected 2"),
    ],
)
def test_an_odd_matrix_is_refused_by_name(scores: ScoreMatrix, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        ScoreTable(scores)


@given(st.integers(0, 0xFFFF), st.integers(0, 16))
def test_subsets_are_all_and_only_those_of_the_count(mask: int, count: int) -> None:
    mask &= 0x3FF3
    found = subsets(mask, count)
    assert sorted(found) == [sub for sub in range(mask + 1) if not sub & ~mask and sub.bit_count() == count]


@given(st.sets(st.integers(0, 15), min_size=3, max_size=3), st.sets(st.integers(0, 15), min_size=3, max_size=3))
def test_order_of_sets_is_that_of_their_index_lists(one: set[int], other: set[int]) -> None:
    assert precedes(mask_of(one), mask_of(other)) == (sorted(one) < sorted(other))
