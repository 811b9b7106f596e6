"""The figures that NVML and GPM can give, under dcgm-exporter's names. Data only.

Names, types and units are DCGM's (dcgm_fields.h) and dcgm-exporter's default counters; the help texts are ours. A
figure that a board does not give has no series: never zero, never a stand-in number.
"""

from enum import StrEnum

from msgspec import Struct


class FieldKind(StrEnum):
    """A field's Prometheus type; a label is put on every other series."""

    GAUGE = "gauge"
    COUNTER = "counter"
    LABEL = "label"


class Field(Struct, frozen=True):
    """The name of a series. ``usual`` ones are exported without a collectors file.

    ``of``: the field whose values the series shows, where it has another name (one of dcgm-exporter 1.x).
    """

    name: str
    kind: FieldKind
    help: str
    usual: bool = True
    of: str = ""

    @property
    def shows(self) -> str:
        """The field whose values the series shows."""
        return self.of or self.name


def _gauge(name: str, text: str, *, usual: bool = True) -> Field:
    return Field(name, FieldKind.GAUGE, text, usual)


def _counter(name: str, text: str, *, usual: bool = True) -> Field:
    return Field(name, FieldKind.COUNTER, text, usual)


def _label(name: str, text: str, *, usual: bool = False) -> Field:
    return Field(name, FieldKind.LABEL, text, usual)


GPU_UTIL = "DCGM_FI_DEV_GPU_UTIL"
MEM_COPY_UTIL = "DCGM_FI_DEV_MEM_COPY_UTIL"
ENC_UTIL = "DCGM_FI_DEV_ENC_UTIL"
DEC_UTIL = "DCGM_FI_DEV_DEC_UTIL"
FB_USED = "DCGM_FI_DEV_FB_USED"
POWER = "DCGM_FI_DEV_POWER_USAGE"
ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
XID_ERRORS = "DCGM_FI_DEV_XID_ERRORS"
CLOCK_REASONS = "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"
GR_ENGINE_ACTIVE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
NVLINK_BANDWIDTH = "DCGM_FI_DEV_NVLINK_BANDWIDTH_L"
XID_COUNT = "DCGM_EXP_XID_ERRORS_COUNT"
CLOCK_EVENT_COUNT = "DCGM_EXP_CLOCK_EVENTS_COUNT"
HEALTH_STATUS = "DCGM_EXP_GPU_HEALTH_STATUS"
RETIRED_SBE = "DCGM_FI_DEV_RETIRED_SBE"
RETIRED_DBE = "DCGM_FI_DEV_RETIRED_DBE"
RETIRED_PENDING = "DCGM_FI_DEV_RETIRED_PENDING"
CRC_FLIT = "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL"
CRC_DATA = "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL"
REPLAY = "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL"
RECOVERY = "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL"

BANKS = "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_"
FABRIC_STATUS = "DCGM_FI_DEV_FABRIC_MANAGER_STATUS"
FABRIC_ERROR = "DCGM_FI_DEV_FABRIC_MANAGER_ERROR_CODE"
FABRIC_CLIQUE = "DCGM_FI_DEV_FABRIC_CLIQUE_ID"
FABRIC_CLUSTER = "DCGM_FI_DEV_FABRIC_CLUSTER_UUID"
FABRIC_HEALTH = "DCGM_FI_DEV_FABRIC_HEALTH_MASK"
TENSOR = "DCGM_FI_PROF_PIPE_TENSOR_"

LINK_COUNTS: dict[int, tuple[str, str]] = {
    number: (f"DCGM_FI_DEV_NVLINK_COUNT_{name}", text)
    for number, name, text in (
        (201, "TX_PACKETS", "packets sent"),
        (202, "TX_BYTES", "bytes sent"),
        (203, "RX_PACKETS", "packets received"),
        (204, "RX_BYTES", "bytes received"),
        (206, "RX_MALFORMED_PACKET_ERRORS", "malformed packets received"),
        (207, "RX_BUFFER_OVERRUN_ERRORS", "packets dropped for want of a buffer"),
        (208, "RX_ERRORS", "packets received with errors"),
        (209, "RX_REMOTE_ERRORS", "packets that the other end marked as bad"),
        (210, "RX_GENERAL_ERRORS", "packets received that do not fit"),
        (211, "LOCAL_LINK_INTEGRITY_ERRORS", "times that errors passed their threshold"),
        (212, "TX_DISCARDS", "packets not sent"),
        (213, "LINK_RECOVERY_SUCCESSFUL_EVENTS", "recoveries that did"),
        (214, "LINK_RECOVERY_FAILED_EVENTS", "recoveries that did not"),
        (215, "LINK_RECOVERY_EVENTS", "recoveries"),
        (219, "EFFECTIVE_ERRORS", "errors left after correction"),
        (221, "RX_SYMBOL_ERRORS", "symbols received with errors"),
    )
}
"""The field and the words for each NVML field id that is asked link by link (Blackwell). Rates of bit errors, which
DCGM decodes from two parts of a number, are left out.
"""
GPM_ENGINES = {"NVDEC": (30, 8), "NVJPG": (40, 8), "NVOFA": (50, 2)}
"""The first GPM metric id of each kind of engine, and the number of engines."""
GPM_LINKS = 18

PER_POD = (GPU_UTIL, MEM_COPY_UTIL, ENC_UTIL, DEC_UTIL, FB_USED)
"""The figures that can be divided among the pods of a shared device, so that the parts add up to the whole."""

FIELDS: tuple[Field, ...] = (
    _gauge("DCGM_FI_DEV_SM_CLOCK", "SM clock, MHz."),
    _gauge("DCGM_FI_DEV_MEM_CLOCK", "Memory clock, MHz."),
    _gauge("DCGM_FI_DEV_VIDEO_CLOCK", "Video encoder and decoder clock, MHz.", usual=False),
    _gauge("DCGM_FI_DEV_MAX_SM_CLOCK", "Greatest SM clock, MHz.", usual=False),
    _gauge("DCGM_FI_DEV_MAX_MEM_CLOCK", "Greatest memory clock, MHz.", usual=False),
    _gauge(CLOCK_REASONS, "What holds the clocks down now: NVML's bit mask of clock event reasons."),
    _gauge("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "The same bit mask under its newer name.", usual=False),
    _gauge("DCGM_FI_DEV_GPU_TEMP", "GPU temperature, degrees Celsius."),
    _gauge("DCGM_FI_DEV_MEMORY_TEMP", "Memory temperature, degrees Celsius."),
    _gauge("DCGM_FI_DEV_SLOWDOWN_TEMP", "GPU temperature that slows the clocks, degrees Celsius.", usual=False),
    _gauge("DCGM_FI_DEV_SHUTDOWN_TEMP", "GPU temperature that turns the board off, degrees Celsius.", usual=False),
    _gauge("DCGM_FI_DEV_GPU_MAX_OP_TEMP", "Greatest GPU temperature to work at, degrees Celsius.", usual=False),
    _gauge("DCGM_FI_DEV_MEM_MAX_OP_TEMP", "Greatest memory temperature to work at, degrees Celsius.", usual=False),
    _gauge(POWER, "Power draw, watts."),
    _gauge("DCGM_FI_DEV_POWER_USAGE_INSTANT", "Power draw of this instant, watts.", usual=False),
    _gauge("DCGM_FI_DEV_POWER_MGMT_LIMIT", "Power limit that is set, watts."),
    _gauge("DCGM_FI_DEV_POWER_MGMT_LIMIT_DEF", "Power limit by default, watts.", usual=False),
    _gauge("DCGM_FI_DEV_POWER_MGMT_LIMIT_MIN", "Least power limit that can be set, watts.", usual=False),
    _gauge("DCGM_FI_DEV_POWER_MGMT_LIMIT_MAX", "Greatest power limit that can be set, watts.", usual=False),
    _gauge("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "Power limit that the driver enforces, watts.", usual=False),
    _counter(ENERGY, "Energy since the driver was loaded, millijoules."),
    _counter("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "PCIe transfers that had to be repeated."),
    _counter("DCGM_FI_DEV_PCIE_TX_THROUGHPUT", "Data sent over PCIe now, KB a second.", usual=False),
    _counter("DCGM_FI_DEV_PCIE_RX_THROUGHPUT", "Data received over PCIe now, KB a second.", usual=False),
    _gauge("DCGM_FI_DEV_PCIE_LINK_GEN", "PCIe generation in use.", usual=False),
    _gauge("DCGM_FI_DEV_PCIE_LINK_WIDTH", "PCIe lanes in use.", usual=False),
    _gauge("DCGM_FI_DEV_PCIE_MAX_LINK_GEN", "Highest PCIe generation.", usual=False),
    _gauge("DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH", "Most PCIe lanes.", usual=False),
    _gauge(GPU_UTIL, "Share of the time that a kernel ran, percent."),
    _gauge(MEM_COPY_UTIL, "Share of the time that memory was read or written, percent."),
    _gauge(ENC_UTIL, "Video encoder utilisation, percent."),
    _gauge(DEC_UTIL, "Video decoder utilisation, percent."),
    _gauge(XID_ERRORS, "Last XID, for ten minutes; after that the XID of the worst open fault, 0 when there is none."),
    _counter("DCGM_FI_DEV_POWER_VIOLATION", "Time slowed down for power, nanoseconds."),
    _counter("DCGM_FI_DEV_THERMAL_VIOLATION", "Time slowed down for heat, nanoseconds."),
    _counter("DCGM_FI_DEV_SYNC_BOOST_VIOLATION", "Time slowed down by sync boost, nanoseconds.", usual=False),
    _counter("DCGM_FI_DEV_BOARD_LIMIT_VIOLATION", "Time slowed down by the board's limit, nanoseconds.", usual=False),
    _counter("DCGM_FI_DEV_LOW_UTIL_VIOLATION", "Time slowed down for low utilisation, nanoseconds.", usual=False),
    _counter("DCGM_FI_DEV_RELIABILITY_VIOLATION", "Time slowed down for reliability, nanoseconds.", usual=False),
    _gauge("DCGM_FI_DEV_FB_TOTAL", "Framebuffer memory in all, MiB.", usual=False),
    _gauge("DCGM_FI_DEV_FB_FREE", "Framebuffer memory free, MiB."),
    _gauge(FB_USED, "Framebuffer memory used, MiB."),
    _gauge("DCGM_FI_DEV_FB_RESERVED", "Framebuffer memory reserved by driver and firmware, MiB."),
    _gauge("DCGM_FI_DEV_FB_USED_PERCENT", "Framebuffer memory used, as a ratio from 0 to 1.", usual=False),
    _gauge("DCGM_FI_DEV_BAR1_TOTAL", "BAR1 memory in all, MiB.", usual=False),
    _gauge("DCGM_FI_DEV_BAR1_USED", "BAR1 memory used, MiB.", usual=False),
    _gauge("DCGM_FI_DEV_BAR1_FREE", "BAR1 memory free, MiB.", usual=False),
    _counter("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "Corrected memory errors since the driver was loaded."),
    _counter("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "Uncorrected memory errors since the driver was loaded."),
    _counter("DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", "Corrected memory errors of the board's life."),
    _counter("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", "Uncorrected memory errors of the board's life."),
    _counter(RETIRED_SBE, "Pages retired for corrected errors.", usual=False),
    _counter(RETIRED_DBE, "Pages retired for uncorrected errors.", usual=False),
    _counter(RETIRED_PENDING, "Pages whose retirement waits for a reboot.", usual=False),
    _counter("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "Rows remapped for uncorrectable errors."),
    _counter("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "Rows remapped for correctable errors."),
    _gauge("DCGM_FI_DEV_ROW_REMAP_FAILURE", "1 where a row could not be remapped."),
    _gauge("DCGM_FI_DEV_ROW_REMAP_PENDING", "1 while a row remap waits for a reset."),
    *(
        _gauge(f"{BANKS}{word}", f"Memory banks with {text} spare rows left.", usual=False)
        for word, text in (("MAX", "all"), ("HIGH", "most"), ("PARTIAL", "some"), ("LOW", "few"), ("NONE", "no"))
    ),
    _counter("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "Data over all NVLinks, both ways, KiB."),
    *(
        _counter(f"{NVLINK_BANDWIDTH}{link}", f"Data over NVLink {link}, both ways, KiB.", usual=False)
        for link in range(18)
    ),
    _counter(CRC_FLIT, "NVLink flow-control CRC errors.", usual=False),
    _counter(CRC_DATA, "NVLink data CRC errors.", usual=False),
    _counter(REPLAY, "NVLink retransmissions.", usual=False),
    _counter(RECOVERY, "NVLink recoveries.", usual=False),
    *(_counter(name, f"NVLink 5, all links: {text}.", usual=False) for name, text in LINK_COUNTS.values()),
    _gauge(FABRIC_STATUS, "Fabric: 0 none, 1 not started, 2 in progress, 3 done, 4 failed.", usual=False),
    _gauge(FABRIC_ERROR, "NVML's code of what went wrong in joining the fabric; 0 nothing.", usual=False),
    _gauge(FABRIC_CLIQUE, "Id of the clique in the fabric.", usual=False),
    _gauge(FABRIC_HEALTH, "NVML's bit mask of the fabric's health.", usual=False),
    _gauge("DCGM_FI_DEV_C2C_LINK_COUNT", "Links between chips.", usual=False),
    _gauge("DCGM_FI_DEV_C2C_LINK_STATUS", "1 while the first link between chips is up.", usual=False),
    _gauge("DCGM_FI_DEV_C2C_MAX_BANDWIDTH", "Speed of a link between chips, MB a second.", usual=False),
    _counter("DCGM_FI_DEV_C2C_LINK_ERROR_INTR", "Errors of links between chips, by interrupt.", usual=False),
    _counter("DCGM_FI_DEV_C2C_LINK_ERROR_REPLAY", "Repeated transfers between chips.", usual=False),
    _counter(
        "DCGM_FI_DEV_C2C_LINK_ERROR_REPLAY_B2B", "Repeated transfers between chips, one after another.", usual=False
    ),
    _gauge("DCGM_FI_DEV_VGPU_LICENSE_STATUS", "State of the virtual GPU licence; 0 where none is needed."),
    _gauge("DCGM_FI_DEV_FAN_SPEED", "Fan speed, percent.", usual=False),
    _gauge("DCGM_FI_DEV_PSTATE", "Performance state, 0 the highest.", usual=False),
    _gauge("DCGM_FI_DEV_MIG_MODE", "1 while MIG mode is on.", usual=False),
    _gauge("DCGM_FI_DEV_COMPUTE_MODE", "NVML's compute mode.", usual=False),
    _gauge("DCGM_FI_DEV_PERSISTENCE_MODE", "1 while persistence mode is on.", usual=False),
    _gauge(GR_ENGINE_ACTIVE, "Share of the time that the graphics or compute engine was active, 0 to 1."),
    _gauge("DCGM_FI_PROF_SM_ACTIVE", "Share of the time that an SM had a warp, mean over the SMs, 0 to 1."),
    _gauge("DCGM_FI_PROF_SM_OCCUPANCY", "Warps on the SMs as a share of the most there can be, 0 to 1."),
    _gauge("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "Share of the time that the tensor pipe was active, 0 to 1."),
    _gauge("DCGM_FI_PROF_DRAM_ACTIVE", "Share of the time that memory was moving data, 0 to 1."),
    _gauge("DCGM_FI_PROF_PIPE_FP64_ACTIVE", "Share of the time that the FP64 pipe was active, 0 to 1.", usual=False),
    _gauge("DCGM_FI_PROF_PIPE_FP32_ACTIVE", "Share of the time that the FP32 pipe was active, 0 to 1.", usual=False),
    _gauge("DCGM_FI_PROF_PIPE_FP16_ACTIVE", "Share of the time that the FP16 pipe was active, 0 to 1.", usual=False),
    _gauge("DCGM_FI_PROF_PCIE_TX_BYTES", "Data sent over PCIe, bytes a second."),
    _gauge("DCGM_FI_PROF_PCIE_RX_BYTES", "Data received over PCIe, bytes a second."),
    _gauge("DCGM_FI_PROF_NVLINK_TX_BYTES", "Data sent over NVLink, bytes a second.", usual=False),
    _gauge("DCGM_FI_PROF_NVLINK_RX_BYTES", "Data received over NVLink, bytes a second.", usual=False),
    _gauge("DCGM_FI_PROF_PIPE_INT_ACTIVE", "Share of the time that the integer pipe was active, 0 to 1.", usual=False),
    *(
        _gauge(f"{TENSOR}{kind}_ACTIVE", f"Share of the time that the tensor pipe did {kind}, 0 to 1.", usual=False)
        for kind in ("DFMA", "HMMA", "IMMA")
    ),
    *(
        _gauge(
            f"DCGM_FI_PROF_{engine}{n}_ACTIVE", f"Share of the time that {engine} {n} was active, 0 to 1.", usual=False
        )
        for engine, (_, count) in GPM_ENGINES.items()
        for n in range(count)
    ),
    *(
        _gauge(
            f"DCGM_FI_PROF_NVLINK_L{link}_{way}_BYTES", f"Data over NVLink {link}, {word}, bytes a second.", usual=False
        )
        for link in range(GPM_LINKS)
        for way, word in (("TX", "sent"), ("RX", "received"))
    ),
    *(
        _gauge(f"DCGM_FI_PROF_C2C_{way}_{what}_BYTES", f"Data between chips, {word}, bytes a second.", usual=False)
        for way, what, word in (
            ("TX", "ALL", "sent in all"),
            ("TX", "DATA", "sent as payload"),
            ("RX", "ALL", "received in all"),
            ("RX", "DATA", "received as payload"),
        )
    ),
    _gauge(XID_COUNT, "XIDs of the last five minutes, by XID; falls again.", usual=False),
    _gauge(CLOCK_EVENT_COUNT, "Readings of the last five minutes with held down clocks, by reason.", usual=False),
    _gauge(HEALTH_STATUS, "What each health watch finds: 0 nothing, 10 a warning, 20 a failure.", usual=False),
    _label("DCGM_FI_DRIVER_VERSION", "Version of the driver.", usual=True),
    _label("DCGM_FI_CUDA_DRIVER_VERSION", "CUDA version of the driver, as NVML's number."),
    _label("DCGM_FI_NVML_VERSION", "Version of the NVML library."),
    _label("DCGM_FI_DEV_NAME", "Name of the product."),
    _label("DCGM_FI_DEV_BRAND", "Brand of the product."),
    _label("DCGM_FI_DEV_SERIAL", "Serial number of the board."),
    _label("DCGM_FI_DEV_UUID", "UUID of the GPU."),
    _label("DCGM_FI_DEV_MINOR_NUMBER", "N of /dev/nvidiaN."),
    _label(FABRIC_CLUSTER, "UUID of the fabric's cluster."),
    _label("DCGM_FI_DEV_PCI_BUSID", "Address on the PCI bus."),
    _label("DCGM_FI_DEV_VBIOS_VERSION", "Version of the board's BIOS."),
    _label("DCGM_FI_DEV_OEM_INFOROM_VER", "Version of the InfoROM's part for the manufacturer."),
    _label("DCGM_FI_DEV_ECC_INFOROM_VER", "Version of the InfoROM's part for ECC."),
    _label("DCGM_FI_DEV_POWER_INFOROM_VER", "Version of the InfoROM's part for power."),
    _label("DCGM_FI_DEV_INFOROM_IMAGE_VER", "Version of the whole InfoROM."),
)
BY_NAME = {field.name: field for field in FIELDS}

_MEMORY_FIELDS = ("DCGM_FI_DEV_FB_", "DCGM_FI_PROF_")


def of_instances(name: str) -> bool:
    """Whether a GPU in MIG mode has this figure of each instance, and not of itself: its sum must not count twice."""
    return name.startswith(_MEMORY_FIELDS)


GPM_USUAL: dict[str, tuple[int, float]] = {
    GR_ENGINE_ACTIVE: (1, 0.01),
    "DCGM_FI_PROF_SM_ACTIVE": (2, 0.01),
    "DCGM_FI_PROF_SM_OCCUPANCY": (3, 0.01),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": (5, 0.01),
    "DCGM_FI_PROF_DRAM_ACTIVE": (10, 0.01),
    "DCGM_FI_PROF_PIPE_FP64_ACTIVE": (11, 0.01),
    "DCGM_FI_PROF_PIPE_FP32_ACTIVE": (12, 0.01),
    "DCGM_FI_PROF_PIPE_FP16_ACTIVE": (13, 0.01),
    "DCGM_FI_PROF_PCIE_TX_BYTES": (20, 2**20),
    "DCGM_FI_PROF_PCIE_RX_BYTES": (21, 2**20),
    "DCGM_FI_PROF_NVLINK_RX_BYTES": (60, 2**20),
    "DCGM_FI_PROF_NVLINK_TX_BYTES": (61, 2**20),
}
"""The GPM metric id (NVML_GPM_METRIC_*) of each field that is asked in each pass, and the factor: percent to ratio,
MiB/s to bytes/s.
"""

GPM_METRICS: dict[str, tuple[int, float]] = {
    **GPM_USUAL,
    "DCGM_FI_PROF_PIPE_INT_ACTIVE": (4, 0.01),
    f"{TENSOR}DFMA_ACTIVE": (6, 0.01),
    f"{TENSOR}HMMA_ACTIVE": (7, 0.01),
    f"{TENSOR}IMMA_ACTIVE": (9, 0.01),
    **{
        f"DCGM_FI_PROF_{engine}{n}_ACTIVE": (first + n, 0.01)
        for engine, (first, count) in GPM_ENGINES.items()
        for n in range(count)
    },
    **{f"DCGM_FI_PROF_NVLINK_L{link}_RX_BYTES": (62 + 2 * link, 2**20) for link in range(GPM_LINKS)},
    **{f"DCGM_FI_PROF_NVLINK_L{link}_TX_BYTES": (63 + 2 * link, 2**20) for link in range(GPM_LINKS)},
    "DCGM_FI_PROF_C2C_TX_ALL_BYTES": (100, 2**20),
    "DCGM_FI_PROF_C2C_RX_ALL_BYTES": (101, 2**20),
    "DCGM_FI_PROF_C2C_TX_DATA_BYTES": (102, 2**20),
    "DCGM_FI_PROF_C2C_RX_DATA_BYTES": (103, 2**20),
}
"""The GPM metric id and factor of all fields; those that are not in GPM_USUAL are asked where they are exported."""

FIELD_VALUES: dict[int, tuple[str, float]] = {
    3: ("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", 1),
    4: ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 1),
    5: ("DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", 1),
    6: ("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", 1),
    29: (RETIRED_SBE, 1),
    30: (RETIRED_DBE, 1),
    31: (RETIRED_PENDING, 1),
    38: (CRC_FLIT, 1),
    45: (CRC_DATA, 1),
    52: (REPLAY, 1),
    59: (RECOVERY, 1),
    74: ("DCGM_FI_DEV_POWER_VIOLATION", 1),
    75: ("DCGM_FI_DEV_THERMAL_VIOLATION", 1),
    76: ("DCGM_FI_DEV_SYNC_BOOST_VIOLATION", 1),
    77: ("DCGM_FI_DEV_BOARD_LIMIT_VIOLATION", 1),
    78: ("DCGM_FI_DEV_LOW_UTIL_VIOLATION", 1),
    79: ("DCGM_FI_DEV_RELIABILITY_VIOLATION", 1),
    82: ("DCGM_FI_DEV_MEMORY_TEMP", 1),
    83: (ENERGY, 1),
    94: ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", 1),
    142: ("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", 1),
    143: ("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", 1),
    144: ("DCGM_FI_DEV_ROW_REMAP_PENDING", 1),
    145: ("DCGM_FI_DEV_ROW_REMAP_FAILURE", 1),
    186: ("DCGM_FI_DEV_POWER_USAGE_INSTANT", 0.001),
}
"""The field and the factor for each NVML field id (NVML_FI_DEV_*)."""

FURTHER_VALUES: dict[int, str] = {
    170: "DCGM_FI_DEV_C2C_LINK_COUNT",
    171: "DCGM_FI_DEV_C2C_LINK_STATUS",
    172: "DCGM_FI_DEV_C2C_MAX_BANDWIDTH",
    231: "DCGM_FI_DEV_C2C_LINK_ERROR_INTR",
    232: "DCGM_FI_DEV_C2C_LINK_ERROR_REPLAY",
    233: "DCGM_FI_DEV_C2C_LINK_ERROR_REPLAY_B2B",
}
"""The field for each NVML field id that is asked where the field is exported."""

LINK_FIELDS: dict[int, str] = {161: REPLAY, 162: RECOVERY, 163: CRC_FLIT}
"""The field for each NVML field id that is asked link by link, where a board has no total (Hopper)."""

LINK_COUNTERS: dict[int, str] = {0: REPLAY, 1: RECOVERY, 2: CRC_FLIT, 3: CRC_DATA}
"""The field for each nvmlNvLinkErrorCounter_t, asked link by link, where a driver has neither of these fields."""

CLOCK_EVENTS = {
    "gpu_idle": 0x1,
    "clocks_setting": 0x2,
    "power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal": 0x20,
    "hw_thermal": 0x40,
    "hw_power_brake": 0x80,
    "display_clocks": 0x100,
}
"""The bits of nvmlClocksEventReason by dcgm-exporter's words for them."""
