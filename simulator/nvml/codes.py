"""NVML's return codes (nvmlReturn_t) and their texts, and the exception that carries one to the caller."""

SUCCESS = 0
UNINITIALIZED = 1
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
INSUFFICIENT_SIZE = 7
DRIVER_NOT_LOADED = 9
TIMEOUT = 10
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
IN_USE = 19
MEMORY = 20
NO_DATA = 21
INSUFFICIENT_RESOURCES = 23
ARGUMENT_VERSION_MISMATCH = 25
UNKNOWN = 999

TEXTS = {
    SUCCESS: "Success",
    UNINITIALIZED: "Uninitialized",
    INVALID_ARGUMENT: "Invalid Argument",
    NOT_SUPPORTED: "Not Supported",
    NO_PERMISSION: "Insufficient Permissions",
    5: "Already Initialized",
    NOT_FOUND: "Not Found",
    INSUFFICIENT_SIZE: "Insufficient Size",
    8: "Insufficient External Power",
    DRIVER_NOT_LOADED: "Driver Not Loaded",
    TIMEOUT: "Timeout",
    11: "Interrupt Request Issue",
    12: "NVML Shared Library Not Found",
    FUNCTION_NOT_FOUND: "Function Not Found",
    14: "Corrupted infoROM",
    GPU_IS_LOST: "GPU is lost",
    RESET_REQUIRED: "GPU requires reset",
    17: "The operating system has blocked the request",
    18: "RM has detected an NVML/RM version mismatch.",
    IN_USE: "In use by another client",
    MEMORY: "Insufficient Memory",
    NO_DATA: "No data",
    22: "The requested vgpu operation is not available on target device, because ECC is enabled",
    INSUFFICIENT_RESOURCES: "Insufficient Resources",
    24: "The requested frequency is not supported",
    ARGUMENT_VERSION_MISMATCH: "Argument version mismatch",
    26: "Deprecated",
    27: "Not ready",
    28: "GPU not found",
    29: "Invalid state",
}


class NvmlError(Exception):
    """A call ends with this code."""

    def __init__(self, code: int) -> None:
        super().__init__(TEXTS.get(code, "Unknown Error"))
        self.code = code
