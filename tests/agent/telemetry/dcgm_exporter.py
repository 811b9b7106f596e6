"""What dcgm-exporter 4 exports by default, and with which labels: recorded from its documentation, as data."""

DEFAULT_COUNTERS = {
    "DCGM_FI_DEV_SM_CLOCK": "gauge",
    "DCGM_FI_DEV_MEM_CLOCK": "gauge",
    "DCGM_FI_DEV_MEMORY_TEMP": "gauge",
    "DCGM_FI_DEV_GPU_TEMP": "gauge",
    "DCGM_FI_DEV_POWER_USAGE": "gauge",
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": "counter",
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": "counter",
    "DCGM_FI_DEV_GPU_UTIL": "gauge",
    "DCGM_FI_DEV_MEM_COPY_UTIL": "gauge",
    "DCGM_FI_DEV_ENC_UTIL": "gauge",
    "DCGM_FI_DEV_DEC_UTIL": "gauge",
    "DCGM_FI_DEV_XID_ERRORS": "gauge",
    "DCGM_FI_DEV_FB_FREE": "gauge",
    "DCGM_FI_DEV_FB_USED": "gauge",
    "DCGM_FI_DEV_FB_RESERVED": "gauge",
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": "counter",
    "DCGM_FI_DEV_VGPU_LICENSE_STATUS": "gauge",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": "counter",
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": "counter",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": "gauge",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": "gauge",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": "gauge",
    "DCGM_FI_PROF_DRAM_ACTIVE": "gauge",
    "DCGM_FI_PROF_PCIE_TX_BYTES": "gauge",
    "DCGM_FI_PROF_PCIE_RX_BYTES": "gauge",
}
"""Series of a Hopper board, MIG mode off, by type."""

DEVICE_LABELS = ("gpu", "UUID", "pci_bus_id", "device", "modelName")
INSTANCE_LABELS = ("GPU_I_PROFILE", "GPU_I_ID")
HOST_LABEL = "Hostname"
DEFAULT_LABEL_FIELDS = ("DCGM_FI_DRIVER_VERSION",)
POD_LABELS = ("container", "namespace", "pod")

DASHBOARD_12239 = (
    "DCGM_FI_DEV_GPU_TEMP",
    "avg(DCGM_FI_DEV_GPU_TEMP)",
    "DCGM_FI_DEV_POWER_USAGE",
    "sum(DCGM_FI_DEV_POWER_USAGE)",
    "DCGM_FI_DEV_SM_CLOCK * 1000000",
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
)
"""What the panels of Grafana's dashboard 12239 ask, without its selectors for instance and gpu."""
