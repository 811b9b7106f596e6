"""A stand-in for the NVIDIA container runtime: run in place of runc, it gives containers the GPUs that they name.

As the real one it reads ``NVIDIA_VISIBLE_DEVICES`` (``all``, or UUIDs), asks the driver's library which GPUs these are,
adds that library and the device files to the container's configuration, and hands on to runc. There is no kernel driver
behind it: the device files are those of ``/dev/null``.

It is a program of its own, started as ``nvidiaruntime.py RUNC LIBRARY`` and the runtime's own words.
"""

import ctypes
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

VARIABLE = "NVIDIA_VISIBLE_DEVICES="
NONE = ("", "void", "none")
FOLDER = f"/usr/lib/{platform.machine()}-linux-gnu"
"""Where the loader of a Debian image looks, without a cache too."""
NULL = {"type": "c", "major": 1, "minor": 3}


def minors(library: str, visible: str) -> list[int]:
    """The numbers in the names of the device files. SystemExit for a UUID that the driver does not know."""
    nvml = ctypes.CDLL(library)
    nvml.nvmlInitWithFlags(0)
    handles = []
    if visible == "all":
        count = ctypes.c_uint()
        nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
        for index in range(count.value):
            handles.append(ctypes.c_void_p())
            nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handles[-1]))
    else:
        for uuid in visible.split(","):
            handles.append(ctypes.c_void_p())
            if nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handles[-1])) != 0:
                raise SystemExit(f"{uuid}: unknown device")
    found = []
    for handle in handles:
        minor = ctypes.c_uint()
        nvml.nvmlDeviceGetMinorNumber(handle, ctypes.byref(minor))
        found.append(minor.value)
    return found


def injected(config: dict[str, Any], library: str) -> dict[str, Any]:
    """The configuration of the container (OCI runtime spec), in which what it names is there."""
    said = [word for word in config["process"].get("env", []) if word.startswith(VARIABLE)]
    visible = said[-1].removeprefix(VARIABLE) if said else ""
    if visible in NONE:
        return config
    to = {"destination": f"{FOLDER}/{Path(library).name}", "type": "bind", "options": ["ro", "nosuid", "nodev", "bind"]}
    config["mounts"].append({"source": library, **to})
    files = [f"/dev/nvidia{minor}" for minor in minors(library, visible)]
    config["linux"].setdefault("devices", []).extend(
        {"path": path, "fileMode": 0o666, "uid": 0, "gid": 0, **NULL} for path in ("/dev/nvidiactl", *files)
    )
    return config


def main() -> None:
    runc, library, *words = sys.argv[1:]
    if "create" in words:
        file = Path(words[words.index("--bundle") + 1], "config.json")
        file.write_text(json.dumps(injected(json.loads(file.read_text()), library)))
    os.execv(runc, [runc, *words])


if __name__ == "__main__":
    main()
