"""The size of the kubelet's list of one resource's devices, from numbers alone: the ListAndWatchResponse of its device
plugin API (v1beta1), as protobuf writes it.

The kubelet's client has gRPC's own limit of 4 MiB for a message. A longer list ends the stream, and the resource with
all its devices is gone from the node. A list is counted with every device Unhealthy, the longer word, so that it fits
whatever happens.
"""

MAX_BYTES = 4 << 20
_MARK = len("::")
_UNHEALTHY = len("Unhealthy")
SHORTEST_ID = len("GPU-00000000-0000-0000-0000-000000000000")


def _varint(value: int) -> int:
    """The bytes of a number."""
    return max(1, -(-value.bit_length() // 7))


def _field(size: int) -> int:
    """The bytes of a field of ``size`` bytes: a tag of one byte, the length, the content."""
    return 1 + _varint(size) + size


def device_bytes(id_length: int, numa_node: int | None) -> int:
    """The bytes of one device in the list."""
    size = _field(id_length) + _field(_UNHEALTHY)
    if numa_node is not None:
        size += _field(_field(1 + _varint(numa_node) if numa_node else 0))
    return _field(size)


def replicas_bytes(id_length: int, numa_node: int | None, first: int, count: int) -> int:
    """The bytes of ``count`` replicas of the device with an id of that length, numbered from ``first``."""
    total, start, end = 0, first, first + count
    while start < end:
        digits = len(str(start))
        stop = min(end, 10**digits)
        total += (stop - start) * device_bytes(id_length + _MARK + digits, numa_node)
        start = stop
    return total


def _most() -> int:
    fits = 0
    step = MAX_BYTES
    while step:
        if replicas_bytes(SHORTEST_ID, None, 0, fits + step) <= MAX_BYTES:
            fits += step
        step //= 2
    return fits


MAX_REPLICAS = _most()
"""The most replicas of one GPU that fit one list, on a machine that tells no NUMA nodes."""
