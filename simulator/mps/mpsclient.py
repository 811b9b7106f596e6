"""A stand-in for a CUDA program under MPS: one client of the daemon of ``$CUDA_MPS_PIPE_DIRECTORY``.

    mpsclient [--hold]     prints the limits that it got as one JSON object; with --hold it stays until the daemon goes

The client brings the limits of its environment, as the CUDA library does. Exit codes: 0 it was served, 1 it was not, 3
it was cut off. It runs as a file of its own, like ``mpscontrol``.
"""

import json
import os
import re
import socket
import sys
from pathlib import Path

CUT_OFF = 3


def limits() -> dict[str, float | int | None]:
    """The limits that the process asks for itself, for device 0."""
    threads = os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
    found = re.search(r"(?:^|,)0=(\d+)([MG])", os.environ.get("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", ""))
    return {
        "threads": float(threads) if threads else None,
        "memoryMib": int(found[1]) * (1024 if found[2] == "G" else 1) if found else None,
    }


def main() -> int:
    pipe = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or "/tmp/nvidia-mps")  # noqa: S108 - CUDA's own default
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control:
        try:
            control.connect(str(pipe / "control"))
            control.sendall(f"client {json.dumps(limits())}\n".encode())
            with control.makefile() as answers:
                line = answers.readline()
                if not line or "error" in json.loads(line):
                    sys.stderr.write(f"MPS client failed to connect to the server: {line.strip() or 'cut off'}\n")
                    return 1
                sys.stdout.write(line)
                sys.stdout.flush()
                if "--hold" in sys.argv[1:]:
                    answers.read()
                    return CUT_OFF
        except OSError as failed:
            sys.stderr.write(f"{pipe}/control: {failed}\n")
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
