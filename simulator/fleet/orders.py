"""Orders to simulated hardware, as data: the fleet's timed events and the control socket's orders.

Both are written alike: ``{gpu: 3, xid: 79}``, ``{gpu: 3, reset: true}``, ``{driver: down}``. Snake case is accepted
beside the fleet file's camel case.
"""

from msgspec import Struct

from simulator.boards.loads import LOAD_KEYS, Load, read_load
from simulator.reading import InputError, Reader

GREATEST_XID = 1000
GREATEST_INSTANCE = 255
GREATEST_DELAY_S = 86400.0

EVERY_CALL = "*"
"""The name of all calls in ``slow`` and ``fail``."""

RESET_CALL = "reset"
"""The name of nvidia-smi's reset in ``slow`` and ``fail``: NVML has no such call."""

GREATEST_CODE = 999


class Xid(Struct, frozen=True, tag=True):
    """The driver logs an XID; with ``gi`` (and ``ci``) it hit one MIG instance only."""

    gpu: int
    xid: int
    gi: int | None = None
    ci: int | None = None


class Lost(Struct, frozen=True, tag=True):
    """The GPU falls off the bus, silently."""

    gpu: int


class Remove(Struct, frozen=True, tag=True):
    """The GPU is hot-removed: it leaves the list."""

    gpu: int


class Add(Struct, frozen=True, tag=True):
    """The GPU, or its replacement, is hot-added: a board without history."""

    gpu: int


class Reset(Struct, frozen=True, tag=True):
    """The GPU is reset. ``destroy_mig`` also drops its MIG instances."""

    gpu: int
    destroy_mig: bool = False


class GpuReset(Struct, frozen=True, tag=True):
    """The GPU is reset as ``nvidia-smi --gpu-reset`` does it: refused while anybody has it, and its MIG instances
    go.
    """

    gpu: int


class Returns(Struct, frozen=True, tag=True):
    """Each reset of the GPU leaves this XID from now on; 0 ends it."""

    gpu: int
    xid: int


class Persistence(Struct, frozen=True, tag=True):
    """Persistence mode is turned on or off: while it is on, something has the GPU open."""

    gpu: int
    on: bool


class Ecc(Struct, frozen=True, tag=True):
    """The GPU has this many more ECC errors; ``gi`` counts them for one MIG instance."""

    gpu: int
    uncorrected: int = 0
    corrected: int = 0
    gi: int | None = None


class RemapFailure(Struct, frozen=True, tag=True):
    """A row could not be remapped: the board is to be replaced."""

    gpu: int


class NvLinkDown(Struct, frozen=True, tag=True):
    """Exactly these NVLinks of the GPU are down from now on; none: all are up again."""

    gpu: int
    links: tuple[int, ...]


class Driver(Struct, frozen=True, tag=True):
    """The driver is unloaded, or loaded (perhaps in another version)."""

    up: bool
    version: str | None = None


class Slow(Struct, frozen=True, tag=True):
    """Calls of that name (``*``: all) take ``seconds``, on one GPU or, with ``gpu`` None, everywhere; 0 ends it."""

    call: str
    seconds: float
    gpu: int | None = None


class Fail(Struct, frozen=True, tag=True):
    """Calls of that name (``*``: all) end with this nvmlReturn_t, on that GPU or, with None, on all; 0 ends it."""

    call: str
    code: int
    gpu: int | None = None


class SetLoad(Struct, frozen=True, tag=True):
    """A process has this load from now on; ``load`` None leaves the GPU idle."""

    gpu: int
    load: Load | None


class End(Struct, frozen=True, tag=True):
    """A process ends, and with it its load on the GPU."""

    gpu: int
    pid: int


class Reboot(Struct, frozen=True, tag=True):
    """The machine reboots."""


class Status(Struct, frozen=True, tag=True):
    """The state is asked for; it does not change."""


Order = (
    Xid
    | Lost
    | Remove
    | Add
    | Reset
    | GpuReset
    | Returns
    | Persistence
    | Ecc
    | RemapFailure
    | NvLinkDown
    | Driver
    | Slow
    | Fail
    | SetLoad
    | End
    | Reboot
    | Status
)

NODE_KINDS = ("driver", "slow", "fail", "reboot", "status")
"""The kinds that need no GPU."""

GPU_KINDS = (
    "xid",
    "lost",
    "remove",
    "add",
    "reset",
    "gpuReset",
    "returns",
    "persistence",
    "ecc",
    "remapFailure",
    "nvlinkDown",
    "load",
    "end",
)

KINDS = (*GPU_KINDS, *NODE_KINDS)

DETAILS = ("gpu", "gi", "ci", "version", "destroyMig")

ORDER_KEYS = (*KINDS, *DETAILS)

_SNAKE = {
    "gpu_reset": "gpuReset",
    "remap_failure": "remapFailure",
    "nvlink_down": "nvlinkDown",
    "destroy_mig": "destroyMig",
}


class TimedOrders(Struct, frozen=True):
    """The orders of one fleet event, at ``at`` seconds of the hardware's clock."""

    at: float
    orders: tuple[Order, ...]


def read_orders(reader: Reader, gpus: int) -> tuple[Order, ...]:
    """The orders in a mapping, in the order of its keys; ``gpus`` is the number of GPUs of the node.

    Raises InputError. The caller has checked for unknown keys.
    """
    kinds = [key for key in reader.value if key in KINDS]
    if not kinds:
        raise InputError(
            f"{reader.source.place(reader.path)}: {reader.where()}: found no event, expected one of {', '.join(KINDS)}"
        )
    return tuple(_read_one(reader, kind, gpus) for kind in kinds)


def parse_order(order: object, gpus: int, source: Reader) -> Order:
    """The one order of a control request. Raises InputError."""
    if isinstance(order, dict):
        order = {_SNAKE.get(key, key) if isinstance(key, str) else key: value for key, value in order.items()}
    reader = Reader(order, source.source).mapping(ORDER_KEYS)
    orders = read_orders(reader, gpus)
    if len(orders) != 1:
        reader.fail("one order at a time")
    return orders[0]


def _gpu(reader: Reader, gpus: int) -> int:
    return reader.need("gpu", "a GPU's index").integer(0, gpus - 1, _gpu_range(gpus))


def _gpu_range(gpus: int) -> str:
    return f"a GPU's index from 0 to {gpus - 1}" if gpus else "no GPU: the node has none"


def _instance(reader: Reader, key: str) -> int | None:
    value = reader.get(key)
    return None if value is None else value.integer(0, GREATEST_INSTANCE)


def _yes(reader: Reader, kind: str) -> None:
    value = reader.need(kind, "true")
    if value.value is not True:
        value.fail("true")


def _read_one(reader: Reader, kind: str, gpus: int) -> Order:
    match kind:
        case "driver":
            up = reader.need("driver", "up or down").word(("up", "down")) == "up"
            version = reader.get("version")
            return Driver(up=up, version=version.text("a driver version") if version else None)
        case "slow":
            return _slow(reader, gpus)
        case "fail":
            return _fail(reader, gpus)
        case "reboot" | "status":
            _yes(reader, kind)
            return Reboot() if kind == "reboot" else Status()
    gpu = _gpu(reader, gpus)
    match kind:
        case "xid":
            xid = reader.need("xid", "an XID").integer(1, GREATEST_XID)
            return Xid(gpu=gpu, xid=xid, gi=_instance(reader, "gi"), ci=_instance(reader, "ci"))
        case "ecc":
            return _ecc(reader, gpu)
        case "nvlinkDown":
            links = reader.need("nvlinkDown", "a list of links").items("a list of links")
            return NvLinkDown(gpu=gpu, links=tuple(sorted({link.integer(0, 35) for link in links})))
        case "load":
            return _load(reader, gpu)
        case "end":
            return End(gpu=gpu, pid=reader.need("end", "a process id").integer(1, 2**31 - 1))
        case "returns" | "persistence":
            return _of_tool(reader, kind, gpu)
        case "reset":
            _yes(reader, kind)
            destroy = reader.get("destroyMig")
            return Reset(gpu=gpu, destroy_mig=destroy.truth() if destroy else False)
    _yes(reader, kind)
    simple: dict[str, type[GpuReset | Lost | Remove | Add | RemapFailure]] = {
        "gpuReset": GpuReset,
        "lost": Lost,
        "remove": Remove,
        "add": Add,
        "remapFailure": RemapFailure,
    }
    return simple[kind](gpu=gpu)


def _of_tool(reader: Reader, kind: str, gpu: int) -> Returns | Persistence:
    if kind == "returns":
        return Returns(gpu=gpu, xid=reader.need("returns", "an XID, or 0").integer(0, GREATEST_XID))
    return Persistence(gpu=gpu, on=reader.need("persistence", "true or false").truth())


def _slow(reader: Reader, gpus: int) -> Slow:
    slow = reader.need("slow", "{call, seconds}").mapping(("call", "seconds"))
    seconds = slow.need("seconds", "seconds").number(0, GREATEST_DELAY_S)
    return Slow(call=_call(slow), seconds=seconds, gpu=_any_gpu(reader, gpus))


def _fail(reader: Reader, gpus: int) -> Fail:
    fail = reader.need("fail", "{call, code}").mapping(("call", "code"))
    code = fail.need("code", "an nvmlReturn_t").integer(0, GREATEST_CODE)
    return Fail(call=_call(fail), code=code, gpu=_any_gpu(reader, gpus))


def _call(reader: Reader) -> str:
    expected = "an NVML function's name, reset, or *"
    call = reader.need("call", expected).text()
    if call not in (EVERY_CALL, RESET_CALL) and not call.startswith("nvml"):
        reader.need("call", "").fail(expected)
    return call


def _any_gpu(reader: Reader, gpus: int) -> int | None:
    gpu = reader.get("gpu")
    return gpu.integer(0, gpus - 1, _gpu_range(gpus)) if gpu else None


def _ecc(reader: Reader, gpu: int) -> Ecc:
    ecc = reader.need("ecc", "{volatile: n}").mapping(("volatile", "corrected"))
    counts = {key: ecc.get(key) for key in ("volatile", "corrected")}
    if not any(counts.values()):
        ecc.fail("volatile (uncorrected errors) or corrected")
    uncorrected, corrected = (count.integer(0, 10**9) if count else 0 for count in counts.values())
    return Ecc(gpu=gpu, uncorrected=uncorrected, corrected=corrected, gi=_instance(reader, "gi"))


def _load(reader: Reader, gpu: int) -> SetLoad:
    load = reader.need("load", "a mapping, {} for none").mapping([key for key in LOAD_KEYS if key != "gpu"])
    return SetLoad(gpu=gpu, load=read_load(load, gpu) if load.value else None)
