"""The ``nvlink`` and ``pcie`` keys of a node, read into link ends and PCIe levels."""

from simulator.boards import wiring as topology
from simulator.boards.boards import Product, Wiring
from simulator.boards.wiring import LinkEnd, Matrix
from simulator.reading import Reader

MOST_LINKS = 36
"""The most links of a GPU, NVML_NVLINK_MAX_LINKS."""

SWITCH_LINKS = 12
PAIR_LINKS = 4
"""The links of a product without NVLink that the fleet wires all the same."""


def read_links(reader: Reader | None, products: list[Product]) -> tuple[tuple[LinkEnd, ...], ...]:
    """The link ends of each GPU. A word that the product has no links for takes 4 links a pair, 12 to switches."""
    count = len(products)
    if reader is None:
        return _default_links(products)
    if isinstance(reader.value, list):
        return topology.link_ends(_matrix(reader, count), 0)
    word = Wiring(reader.word([wiring.value for wiring in Wiring]))
    if word is Wiring.DGX1 and count > topology.DGX1_GPUS:
        reader.fail(f"a word for {count} GPUs: dgx1 has {topology.DGX1_GPUS}")
    known = min((product.nvlinks for product in products), default=0)
    if word is Wiring.FULL:
        ends = [topology.link_ends(((0,),), product.nvlinks or known or SWITCH_LINKS)[0] for product in products]
        return tuple(ends)
    return topology.link_ends(topology.direct_links(word, count, known or PAIR_LINKS), 0)


def _default_links(products: list[Product]) -> tuple[tuple[LinkEnd, ...], ...]:
    """The products' own wiring; a node of mixed products is only linked through switches, where it has any."""
    count = len(products)
    if len({product.name for product in products}) == 1:
        product = products[0]
        wiring = product.wiring
        if wiring is Wiring.DGX1 and count > topology.DGX1_GPUS:
            wiring = Wiring.NONE
        switched = product.nvlinks if wiring is Wiring.FULL else 0
        return topology.link_ends(topology.direct_links(wiring, count, product.nvlinks), switched)
    alone: Matrix = ((0,),)
    return tuple(
        topology.link_ends(alone, product.nvlinks if product.wiring is Wiring.FULL else 0)[0] for product in products
    )


def _matrix(reader: Reader, count: int) -> Matrix:
    expected = f"a word or a symmetric matrix of link counts, {count} x {count}"
    rows = [row.items(expected) for row in reader.items(expected)]
    if len(rows) != count or any(len(row) != count for row in rows):
        reader.fail(expected)
    matrix = tuple(tuple(cell.integer(0, MOST_LINKS) for cell in row) for row in rows)
    for i in range(count):
        for j in range(count):
            if matrix[i][j] != matrix[j][i]:
                rows[i][j].fail(f"{matrix[j][i]}, as in row {j}, column {i}: links have two ends")
        if sum(matrix[i]) - matrix[i][i] > MOST_LINKS:
            reader.fail(f"at most {MOST_LINKS} links a GPU")
    return matrix


def read_levels(
    reader: Reader | None, given: list[int | None], products: list[Product]
) -> tuple[Matrix, tuple[int, ...]]:
    """The PCIe levels and NUMA nodes: from ``pcie``, else from each GPU's ``numaNode``, else the product's usual."""
    count = len(products)
    if reader is None:
        groups = topology.default_groups(count, max((p.gpus_per_numa for p in products), default=1))
        if any(node is not None for node in given):
            groups = topology.groups_of_numa(tuple(0 if node is None else node for node in given))
        levels = topology.levels_of_groups(groups, count)
    elif _holds_words(reader.value):
        levels = _level_matrix(reader, count)
    else:
        levels = _level_groups(reader, count)
    numa = topology.numa_of_levels(levels)
    return levels, tuple(numa[i] if node is None else node for i, node in enumerate(given))


def _level_groups(reader: Reader, count: int) -> Matrix:
    expected = f"lists of GPU indexes, one for each NUMA node, that hold each of 0 to {count - 1} once"
    groups = tuple(
        tuple(gpu.integer(0, count - 1, expected) for gpu in group.items(expected)) for group in reader.items(expected)
    )
    if sorted(gpu for group in groups for gpu in group) != list(range(count)):
        reader.fail(expected)
    return topology.levels_of_groups(groups, count)


def _level_matrix(reader: Reader, count: int) -> Matrix:
    words = (*topology.LEVELS, topology.SELF)
    expected = f"a symmetric matrix of {', '.join(words)}, {count} x {count}"
    rows = [row.items(expected) for row in reader.items(expected)]
    if len(rows) != count or any(len(row) != count for row in rows):
        reader.fail(expected)
    levels = [[topology.LEVELS.get(cell.word(words), 0) for cell in row] for row in rows]
    for i in range(count):
        for j in range(count):
            if (rows[i][j].value == topology.SELF) != (i == j):
                rows[i][j].fail("X on the diagonal and nowhere else")
            if levels[i][j] != levels[j][i]:
                rows[i][j].fail(f"{rows[j][i].value}, as in row {j}, column {i}")
    return tuple(tuple(row) for row in levels)


def _holds_words(value: object) -> bool:
    """Whether the value is a list of lists with a text in it: a matrix of levels, not lists of indexes."""
    rows = value if isinstance(value, list) else []
    return any(isinstance(cell, str) for row in rows if isinstance(row, list) for cell in row)
