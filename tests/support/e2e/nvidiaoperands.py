"""What the GPU Operator's feature discovery, MIG manager and dcgm-exporter write on a node, by a program instead.

It is run in a container, as ``nvidiaoperands.py PART UUID...``, and leaves when it is told to end. Values are those of
a node with NVIDIA A100-SXM4-80GB and driver 570.124.06, as NVIDIA's README of feature discovery explains the labels.
"""

import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Final

FEATURES: Final = Path("/features.d/gfd")
"""The file that node feature discovery makes labels of; feature discovery removes it when it ends."""
PORT: Final = 9400
_MACHINE: Final = Path("/sys/class/dmi/id/product_name")
_LABELS: Final = """\
cuda.driver-version.full=570.124.06
cuda.driver-version.major=570
cuda.driver-version.minor=124
cuda.driver-version.revision=06
cuda.driver.major=570
cuda.driver.minor=124
cuda.driver.rev=06
cuda.runtime-version.full=12.8
cuda.runtime-version.major=12
cuda.runtime-version.minor=8
cuda.runtime.major=12
cuda.runtime.minor=8
gpu.compute.major=8
gpu.compute.minor=0
gpu.family=ampere
gpu.memory=81920
gpu.mode=compute
gpu.product=NVIDIA-A100-SXM4-80GB
gpu.replicas=1
gpu.sharing-strategy=none
mig.capable=true
mig.strategy=single
mps.capable=false
vgpu.present=false
"""


def labels(gpus: int) -> str:
    """Lines ``key=value``, as the file has them."""
    machine = _MACHINE.read_text().strip() if _MACHINE.exists() else "unknown"
    more = f"gfd.timestamp={int(time.time())}\ngpu.count={gpus}\ngpu.machine={machine.replace(' ', '-')}\n"
    return "".join(f"nvidia.com/{line}\n" for line in (_LABELS + more).splitlines())


def main() -> None:
    part, *uuids = sys.argv[1:]
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    if part == "gpu-feature-discovery":
        FEATURES.write_text(labels(len(uuids)))
    if part == "dcgm-exporter":
        lines = "".join(f'DCGM_FI_DEV_GPU_UTIL{{gpu="{index}",UUID="{uuid}"}} 0\n' for index, uuid in enumerate(uuids))

        class Metrics(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(lines.encode())

        threading.Thread(target=HTTPServer(("", PORT), Metrics).serve_forever, daemon=True).start()
    over.wait()
    if part == "gpu-feature-discovery":
        FEATURES.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
