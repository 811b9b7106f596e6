"""The wiring of a node's GPUs, worked out once from the fleet: NVLink ends, PCIe levels, NUMA nodes. Pure."""

from msgspec import Struct

from simulator.boards.boards import Wiring

LEVELS = {"PSB": 0, "PIX": 10, "PXB": 20, "PHB": 30, "NODE": 40, "SYS": 50}
"""The NVML_TOPOLOGY_* of each PCIe closeness word of the fleet file."""

SELF = "X"

DGX1_LINKS = (
    (0, 1, 1, 2, 2, 0, 0, 0),
    (1, 0, 2, 1, 0, 2, 0, 0),
    (1, 2, 0, 2, 0, 0, 1, 0),
    (2, 1, 2, 0, 0, 0, 0, 1),
    (2, 0, 0, 0, 0, 1, 1, 2),
    (0, 2, 0, 0, 1, 0, 2, 1),
    (0, 0, 1, 0, 1, 2, 0, 2),
    (0, 0, 0, 1, 2, 1, 2, 0),
)
"""The direct links of a DGX-1 with V100: a hybrid cube mesh, six links a GPU."""

DGX1_GPUS = len(DGX1_LINKS)

Matrix = tuple[tuple[int, ...], ...]


class LinkEnd(Struct, frozen=True):
    """The end of one NVLink of a GPU: another GPU's link, or (``peer`` None) a port of an NVSwitch."""

    peer: int | None
    remote_link: int


def direct_links(wiring: Wiring, gpus: int, links_per_gpu: int) -> Matrix:
    """Direct link counts between GPUs for a wiring word; all zero for ``full`` (links go to switches) and ``none``."""
    if wiring is Wiring.PAIRS:
        return tuple(
            tuple(links_per_gpu if i != j and i // 2 == j // 2 else 0 for j in range(gpus)) for i in range(gpus)
        )
    if wiring is Wiring.DGX1:
        return tuple(row[:gpus] for row in DGX1_LINKS[:gpus])
    return tuple((0,) * gpus for _ in range(gpus))


def link_ends(matrix: Matrix, switch_links: int) -> tuple[tuple[LinkEnd, ...], ...]:
    """The end of each link of each GPU: direct ones to peers in index order, then those to switches."""
    numbers: list[dict[tuple[int, int], int]] = []
    for i, row in enumerate(matrix):
        order = [(j, k) for j, count in enumerate(row) if j != i for k in range(count)]
        numbers.append({end: link for link, end in enumerate(order)})
    result = []
    for i, row in enumerate(matrix):
        ends = [LinkEnd(j, numbers[j][i, k]) for j, count in enumerate(row) if j != i for k in range(count)]
        ends += [LinkEnd(None, i) for _ in range(switch_links)]
        result.append(tuple(ends))
    return tuple(result)


def levels_of_groups(groups: tuple[tuple[int, ...], ...], gpus: int) -> Matrix:
    """The NVML levels where GPUs of one list share a host bridge and lists are across the system."""
    where = {gpu: n for n, group in enumerate(groups) for gpu in group}
    return tuple(
        tuple(LEVELS["PSB"] if i == j else LEVELS["PHB" if where[i] == where[j] else "SYS"] for j in range(gpus))
        for i in range(gpus)
    )


def numa_of_levels(levels: Matrix) -> tuple[int, ...]:
    """The NUMA node of each GPU: GPUs closer than SYS share one; nodes are numbered by their first GPU."""
    numa: list[int] = []
    for i, row in enumerate(levels):
        near = next((numa[j] for j in range(i) if row[j] < LEVELS["SYS"]), None)
        numa.append(max(numa, default=-1) + 1 if near is None else near)
    return tuple(numa)


def default_groups(gpus: int, per_numa: int) -> tuple[tuple[int, ...], ...]:
    """The GPUs in index order, ``per_numa`` to each NUMA node."""
    return tuple(tuple(range(start, min(start + per_numa, gpus))) for start in range(0, gpus, per_numa))


def groups_of_numa(numa: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """The GPU lists by NUMA node, in the order of the nodes' numbers."""
    return tuple(tuple(i for i, n in enumerate(numa) if n == node) for node in sorted(set(numa)))
