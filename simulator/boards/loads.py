"""The work of a simulated GPU: one ``Load`` per process, its figures constant or a curve over the clock. Pure."""

from bisect import bisect_right
from collections.abc import Callable
from itertools import pairwise
from operator import attrgetter

from msgspec import Struct

from simulator.reading import Reader

Curve = tuple[tuple[float, float], ...]
"""Points (seconds on the hardware's clock, value), ascending; straight lines between, level before and after."""

ZERO: Curve = ((0.0, 0.0),)

CLIENT = "client"
"""A process that has the GPU open and runs nothing on it: a monitor, a profiler."""

PROCESS_TYPES = ("compute", "graphics", "mps", CLIENT)

THROTTLE_REASONS = {
    "swPowerCap": 0x4,
    "hwSlowdown": 0x8,
    "syncBoost": 0x10,
    "swThermalSlowdown": 0x20,
    "hwThermalSlowdown": 0x40,
    "hwPowerBrake": 0x80,
}
"""The nvmlClocksEventReason bits of each word in the fleet file."""

_CURVES = {
    "smUtil": ("sm_util", 1.0),
    "memUtil": ("mem_util", 1.0),
    "encUtil": ("enc_util", 1.0),
    "decUtil": ("dec_util", 1.0),
    "jpgUtil": ("jpg_util", 1.0),
    "ofaUtil": ("ofa_util", 1.0),
    "tensorUtil": ("tensor_util", 1.0),
    "memUsedMiB": ("mem_used_mib", 1e7),
    "powerW": ("power_w", 1e5),
    "temperatureC": ("temperature_c", 150.0),
    "pcieTxMiBs": ("pcie_tx_mib_s", 1e6),
    "pcieRxMiBs": ("pcie_rx_mib_s", 1e6),
    "nvlinkTxMiBs": ("nvlink_tx_mib_s", 1e7),
    "nvlinkRxMiBs": ("nvlink_rx_mib_s", 1e7),
}
"""The field and the greatest value of each key in the fleet file."""

_EVERY_CURVE: Callable[["Load"], tuple["Curve | None", ...]] = attrgetter(*(field for field, _ in _CURVES.values()))

LOAD_KEYS = ("gpu", "pid", "gi", "ci", "name", "type", "throttle", *_CURVES)
"""The keys of a load beside ``node``."""


class Load(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One process on one GPU (or one MIG instance of it). Utilisations are 0 to 1, rates in MiB/s.

    ``power_w`` and ``temperature_c`` are the board's while this is its only load; None where they follow ``sm_util``.
    """

    gpu: int
    pid: int | None = None
    gi: int | None = None
    ci: int | None = None
    name: str = ""
    type: str = "compute"
    throttle: int = 0
    sm_util: Curve = ZERO
    mem_util: Curve | None = None
    enc_util: Curve = ZERO
    dec_util: Curve = ZERO
    jpg_util: Curve = ZERO
    ofa_util: Curve = ZERO
    tensor_util: Curve | None = None
    mem_used_mib: Curve = ZERO
    power_w: Curve | None = None
    temperature_c: Curve | None = None
    pcie_tx_mib_s: Curve = ZERO
    pcie_rx_mib_s: Curve = ZERO
    nvlink_tx_mib_s: Curve = ZERO
    nvlink_rx_mib_s: Curve = ZERO

    @property
    def key(self) -> tuple[int, int | None, int | None, int | None]:
        """The key of a load: a later order with the same process in the same place replaces it."""
        return self.gpu, self.pid, self.gi, self.ci

    def curves(self) -> tuple[Curve, ...]:
        """Every curve that is set."""
        return tuple(curve for curve in _EVERY_CURVE(self) if curve is not None)


def value_at(curve: Curve, t: float) -> float:
    """The curve's value at the time ``t``."""
    if len(curve) == 1 or t <= curve[0][0]:
        return curve[0][1]
    i = bisect_right(curve, (t, float("inf")))
    if i == len(curve):
        return curve[-1][1]
    (t0, v0), (t1, v1) = curve[i - 1], curve[i]
    return v0 + (v1 - v0) * (t - t0) / (t1 - t0)


def breakpoints(loads: tuple[Load, ...], start: float, end: float) -> list[float]:
    """The ends of straight stretches: ``start``, every point where some curve bends, and ``end``."""
    bent = (curve for load in loads for curve in load.curves() if len(curve) > 1)
    inner = {t for curve in bent for t, _ in curve if start < t < end}
    return [start, *sorted(inner), end]


def _curve(reader: Reader, most: float) -> Curve:
    if not isinstance(reader.value, list):
        return ((0.0, reader.number(0, most)),)
    points = []
    for item in reader.items("a number or a list of [seconds, value]"):
        pair = item.items("[seconds, value]")
        if len(pair) != 2:  # noqa: PLR2004 - a pair is two
            item.fail("[seconds, value]")
        points.append((pair[0].number(0, 1e9), pair[1].number(0, most)))
    if not points or any(a[0] >= b[0] for a, b in pairwise(points)):
        reader.fail("a non-empty list of [seconds, value] with ascending seconds")
    return tuple(points)


def read_load(reader: Reader, gpu: int) -> Load:
    """A load from the fleet file or an order; the caller has checked the keys and found the GPU."""
    fields: dict[str, Curve] = {}
    for key, (field, most) in _CURVES.items():
        value = reader.get(key)
        if value is not None:
            fields[field] = _curve(value, most)
    pid, gi, ci = (reader.get(key) for key in ("pid", "gi", "ci"))
    name, kind, throttle = (reader.get(key) for key in ("name", "type", "throttle"))
    reasons = 0
    for word in throttle.items("a list of reasons") if throttle else []:
        reasons |= THROTTLE_REASONS[word.word(THROTTLE_REASONS)]
    return Load(
        gpu=gpu,
        pid=pid.integer(1, 2**31 - 1) if pid else None,
        gi=gi.integer(0, 255) if gi else None,
        ci=ci.integer(0, 255) if ci else None,
        name=name.text() if name else "",
        type=kind.word(PROCESS_TYPES) if kind else "compute",
        throttle=reasons,
        **fields,
    )
