"""The image as the Dockerfile makes it, built by Buildah: as root, without a daemon, a registry or a network.

The base is made of Debian's packages in place of the published one, and the locked packages are fetched before: the
build itself sees a folder of wheels.
"""

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from hack.cluster import prerequisites
from hack.cluster.errors import ClusterError
from hack.cluster.programs import debian
from hack.cluster.programs.images import Image, archive
from hack.show import ROOT

TAG: Final = "tessera.test/tessera-agent:built"
PYTHON: Final = "/opt/tessera/bin/python"
"""The interpreter in the image."""
_BASE: Final = "tessera.test/python:base"
_PACKAGES: Final = ("python3.11", "python3.11-venv", "python3-pip", "libstdc++6", "dash", "coreutils")
_LINKS: Final = {"usr/bin/python": "python3.11", "usr/bin/python3": "python3.11", "bin/sh": "dash"}
_PIP: Final = "[global]\nno-index = true\nfind-links = /wheels\nbreak-system-packages = true\n"


def write(path: Path, tag: str = TAG) -> None:
    """Build it, and write it as a tar that ``ctr images import`` takes. Raises ClusterError."""
    if shutil.which("buildah") is None:
        prerequisites.install(["buildah"])
    with tempfile.TemporaryDirectory(prefix="tessera-image-", dir="/var/tmp") as scratch:
        folder = Path(scratch)
        _fetch(folder / "wheels")
        (folder / "pip.conf").write_text(_PIP)
        (folder / "base.tar").write_bytes(_base())
        _buildah(folder, "pull", f"docker-archive:{folder / 'base.tar'}")
        mounts = (f"{folder / 'wheels'}:/wheels:ro", f"{folder / 'pip.conf'}:/etc/pip.conf:ro")
        volumes = [word for mount in mounts for word in ("--volume", mount)]
        build = ("--isolation", "chroot", "--build-arg", f"PYTHON={_BASE}", "--pull-never", *volumes, "--tag", tag)
        _buildah(folder, "build", *build, str(ROOT))
        path.unlink(missing_ok=True)
        _buildah(folder, "push", tag, f"docker-archive:{path}:{tag}")


def _fetch(folder: Path) -> None:
    """Wheels of the locked packages, each checked against its hash."""
    lock = ("--require-hashes", "--only-binary=:all:", "--requirement", str(ROOT / "requirements" / "run.txt"))
    _run([sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(folder), *lock])


def _base() -> bytes:
    layer = debian.layer(_PACKAGES, files={}, links=_LINKS)
    image = Image(tag=_BASE, layer=layer, command=["python"], environment={"PATH": "/usr/local/bin:/usr/bin:/bin"})
    return archive([image], machine=platform.machine())


def _buildah(folder: Path, *words: str) -> None:
    """With all its files in ``folder``; the driver that needs nothing of the kernel."""
    stores = ("--storage-driver", "vfs", "--root", str(folder / "store"), "--runroot", str(folder / "run"))
    _run(["buildah", *stores, *words])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ClusterError(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-3000:].rstrip()}")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
