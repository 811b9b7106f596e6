"""The sum of a board's loads, at a moment and over time. Pure arithmetic over the load curves.

Power is integrated over the hardware's clock, so energy and traffic counters are the same whoever reads them and
however often, and go on through the agent's downtime.
"""

from itertools import pairwise

from msgspec import Struct

from simulator.boards.boards import Product
from simulator.boards.loads import Curve, Load, breakpoints, value_at

IDLE_TEMPERATURE_C = 31.0
WARMTH_C_AT_LIMIT = 42.0
MEMORY_OVER_GPU_C = 6.0

MEMORY_UTIL_SHARE = 0.5
"""The part of a load's SM utilisation that is its memory (and tensor) utilisation, where it does not say."""

POWER_SHARE = 0.9
"""The part of the power between idle and limit that a load draws at full utilisation, where it does not say."""

KIB_PER_MIB = 1024


class Activity(Struct, frozen=True):
    """A board (or, without power and temperature, a part of it) at one moment. Utilisations are 0 to 1."""

    sm: float = 0.0
    memory: float = 0.0
    encoder: float = 0.0
    decoder: float = 0.0
    jpeg: float = 0.0
    ofa: float = 0.0
    tensor: float = 0.0
    mem_used_mib: float = 0.0
    power_w: float = 0.0
    temperature_c: float = 0.0
    pcie_tx_mib_s: float = 0.0
    pcie_rx_mib_s: float = 0.0
    nvlink_tx_mib_s: float = 0.0
    nvlink_rx_mib_s: float = 0.0
    throttle: int = 0


class Meter(Struct, frozen=True):
    """The counters since ``at`` of the last reset, as they stood at ``read_at``."""

    at: float = 0.0
    read_at: float = 0.0
    energy_mj: float = 0.0
    pcie_tx_kib: float = 0.0
    pcie_rx_kib: float = 0.0
    nvlink_tx_kib: float = 0.0
    nvlink_rx_kib: float = 0.0
    throttle_ns: dict[int, float] = {}


def _sum(curves: list[Curve], t: float, most: float) -> float:
    total = 0.0
    for curve in curves:
        # Nearly all curves are single numbers, and an agent asks for hundreds of sums in a pass.
        total += curve[0][1] if len(curve) == 1 else value_at(curve, t)
    return min(most, total)


def memory_used_mib(loads: tuple[Load, ...], t: float) -> float:
    """The memory in MiB that the loads hold of the board, or of a part of it."""
    return _sum([load.mem_used_mib for load in loads], t, float("inf"))


def activity(loads: tuple[Load, ...], product: Product, limit_w: float, t: float) -> Activity:
    """The sum of the loads; utilisations stop at 1, power at the limit, and an idle board draws its idle power."""
    idle_w, _, _ = product.power_w
    if not loads:
        return Activity(power_w=float(idle_w), temperature_c=IDLE_TEMPERATURE_C)
    sm = _sum([load.sm_util for load in loads], t, 1.0)
    power = float(idle_w)
    for load in loads:
        if load.power_w is not None:
            power += max(0.0, value_at(load.power_w, t) - idle_w)
        else:
            power += value_at(load.sm_util, t) * (limit_w - idle_w) * POWER_SHARE
    power = min(power, max(limit_w, idle_w))
    warmth = WARMTH_C_AT_LIMIT * (power - idle_w) / max(1.0, product.power_w[2] - idle_w)
    temperatures = [value_at(load.temperature_c, t) for load in loads if load.temperature_c is not None]
    return Activity(
        sm=sm,
        memory=min(1.0, sum(_or_share(load.mem_util, load, t) for load in loads)),
        encoder=_sum([load.enc_util for load in loads], t, 1.0),
        decoder=_sum([load.dec_util for load in loads], t, 1.0),
        jpeg=_sum([load.jpg_util for load in loads], t, 1.0),
        ofa=_sum([load.ofa_util for load in loads], t, 1.0),
        tensor=min(1.0, sum(_or_share(load.tensor_util, load, t) for load in loads)),
        mem_used_mib=memory_used_mib(loads, t),
        power_w=power,
        temperature_c=max(temperatures) if temperatures else IDLE_TEMPERATURE_C + warmth,
        pcie_tx_mib_s=_sum([load.pcie_tx_mib_s for load in loads], t, float("inf")),
        pcie_rx_mib_s=_sum([load.pcie_rx_mib_s for load in loads], t, float("inf")),
        nvlink_tx_mib_s=_sum([load.nvlink_tx_mib_s for load in loads], t, float("inf")),
        nvlink_rx_mib_s=_sum([load.nvlink_rx_mib_s for load in loads], t, float("inf")),
        throttle=_throttle(loads, t),
    )


def _or_share(curve: Curve | None, load: Load, t: float) -> float:
    return value_at(curve, t) if curve is not None else MEMORY_UTIL_SHARE * value_at(load.sm_util, t)


def _throttle(loads: tuple[Load, ...], t: float) -> int:
    reasons = 0
    for load in loads:
        if value_at(load.sm_util, t) > 0:
            reasons |= load.throttle
    return reasons


def read_meter(meter: Meter, loads: tuple[Load, ...], product: Product, limit_w: float, t: float) -> Meter:
    """The counters at ``t``: trapezoids between the curves' points, exact but where a cap cuts a curve."""
    if t <= meter.read_at:
        return meter
    energy = pcie_tx = pcie_rx = nvlink_tx = nvlink_rx = 0.0
    throttle = dict(meter.throttle_ns)
    moments = breakpoints(loads, meter.read_at, t)
    states = [activity(loads, product, limit_w, moment) for moment in moments]
    for (t0, a), (t1, b) in pairwise(zip(moments, states, strict=True)):
        half = (t1 - t0) / 2
        energy += (a.power_w + b.power_w) * half
        pcie_tx += (a.pcie_tx_mib_s + b.pcie_tx_mib_s) * half
        pcie_rx += (a.pcie_rx_mib_s + b.pcie_rx_mib_s) * half
        nvlink_tx += (a.nvlink_tx_mib_s + b.nvlink_tx_mib_s) * half
        nvlink_rx += (a.nvlink_rx_mib_s + b.nvlink_rx_mib_s) * half
        for bit in range(16):
            if (a.throttle & b.throttle) >> bit & 1:
                throttle[bit] = throttle.get(bit, 0.0) + (t1 - t0) * 1e9
    return Meter(
        at=meter.at,
        read_at=t,
        energy_mj=meter.energy_mj + energy * 1000,
        pcie_tx_kib=meter.pcie_tx_kib + pcie_tx * KIB_PER_MIB,
        pcie_rx_kib=meter.pcie_rx_kib + pcie_rx * KIB_PER_MIB,
        nvlink_tx_kib=meter.nvlink_tx_kib + nvlink_tx * KIB_PER_MIB,
        nvlink_rx_kib=meter.nvlink_rx_kib + nvlink_rx * KIB_PER_MIB,
        throttle_ns=throttle,
    )
