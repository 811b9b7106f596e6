"""A node with NVIDIA's driver and the NVIDIA container runtime, as the chart's defaults expect them.

The driver is our library in C, which lies where distributions put the real one; the runtime is a stand-in that runs in
place of runc. Both are there in the node's mount namespace alone: the machine's files stay as they are.
"""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from hack.cluster.nodes.node import NodeHost
from hack.cluster.prerequisites import search_path
from hack.foreignnvml import compile_stub
from tests.support.e2e import nvidiaruntime

LIBRARIES: Final = Path("/usr/lib64")
"""Where Red Hat's family has the driver. Debian keeps no more there than the way to the loader, which is kept."""
UUIDS: Final = tuple(f"GPU-5707b000-0000-0000-0000-{index:012d}" for index in range(2))
"""Of that library's GPUs."""


def runc() -> Path:
    """What runs containers where nothing stands in for it."""
    found = shutil.which("runc", path=search_path())
    assert found is not None
    return Path(found).resolve()


def take_runtime(host: NodeHost) -> None:
    """Containers that start from now on are shown nothing of the driver, which stays."""
    subprocess.run(host.inside("umount", str(runc())), check=True, capture_output=True)


def furnish(host: NodeHost) -> None:
    """For containers that start from now on."""
    folder = host.paths.home / "nvidia"
    libraries = folder / "lib64"
    shutil.copytree(LIBRARIES, libraries, symlinks=True)
    library = LIBRARIES / compile_stub(libraries).name
    real, program, instead = folder / "runc", folder / "nvidiaruntime.py", folder / "nvidia-container-runtime"
    shutil.copy(runc(), real)
    shutil.copy(nvidiaruntime.__file__, program)
    words = map(str, (Path(sys.base_prefix, "bin/python3"), "-IS", program, real, library))
    instead.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    instead.chmod(0o755)
    for source, target in ((libraries, LIBRARIES), (instead, runc())):
        subprocess.run(host.inside("mount", "--bind", str(source), str(target)), check=True, capture_output=True)
