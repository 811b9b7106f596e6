"""The names that dcgm-exporter 1.x gave its series, which later releases still take in a collectors file. Data only.

Source: its ``1.x-compatibility-metrics.csv``, commented lines included.
"""

_DEVICE = {
    "sm_clock": "SM_CLOCK",
    "memory_clock": "MEM_CLOCK",
    "memory_temp": "MEMORY_TEMP",
    "gpu_temp": "GPU_TEMP",
    "power_usage": "POWER_USAGE",
    "total_energy_consumption": "TOTAL_ENERGY_CONSUMPTION",
    "pcie_tx_throughput": "PCIE_TX_THROUGHPUT",
    "pcie_rx_throughput": "PCIE_RX_THROUGHPUT",
    "pcie_replay_counter": "PCIE_REPLAY_COUNTER",
    "gpu_utilization": "GPU_UTIL",
    "mem_copy_utilization": "MEM_COPY_UTIL",
    "enc_utilization": "ENC_UTIL",
    "dec_utilization": "DEC_UTIL",
    "xid_errors": "XID_ERRORS",
    "power_violation": "POWER_VIOLATION",
    "thermal_violation": "THERMAL_VIOLATION",
    "sync_boost_violation": "SYNC_BOOST_VIOLATION",
    "board_limit_violation": "BOARD_LIMIT_VIOLATION",
    "low_util_violation": "LOW_UTIL_VIOLATION",
    "reliability_violation": "RELIABILITY_VIOLATION",
    "fb_free": "FB_FREE",
    "fb_used": "FB_USED",
    "ecc_sbe_volatile_total": "ECC_SBE_VOL_TOTAL",
    "ecc_dbe_volatile_total": "ECC_DBE_VOL_TOTAL",
    "ecc_sbe_aggregate_total": "ECC_SBE_AGG_TOTAL",
    "ecc_dbe_aggregate_total": "ECC_DBE_AGG_TOTAL",
    "retired_pages_sbe": "RETIRED_SBE",
    "retired_pages_dbe": "RETIRED_DBE",
    "retired_pages_pending": "RETIRED_PENDING",
    "nvlink_flit_crc_error_count_total": "NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
    "nvlink_data_crc_error_count_total": "NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
    "nvlink_replay_error_count_total": "NVLINK_REPLAY_ERROR_COUNT_TOTAL",
    "nvlink_recovery_error_count_total": "NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
    "nvlink_bandwidth_total": "NVLINK_BANDWIDTH_TOTAL",
}
_PROFILING = (
    "gr_engine_active",
    "sm_active",
    "sm_occupancy",
    "pipe_tensor_active",
    "dram_active",
    "pcie_tx_bytes",
    "pcie_rx_bytes",
)

LEGACY: dict[str, str] = {
    **{f"dcgm_{old}": f"DCGM_FI_DEV_{new}" for old, new in _DEVICE.items()},
    **{f"dcgm_fi_prof_{name}": f"DCGM_FI_PROF_{name.upper()}" for name in _PROFILING},
}
"""The field for each old name."""
