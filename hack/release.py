"""Keep a release for the tests that upgrade from it: ``python -m hack.release COMMIT``, where the clone has the commit.

Its chart as Helm packs it, and the programs of its image, below ``tests/releases``: a clean clone needs no history.
"""

import gzip
import lzma
import subprocess
import sys
from typing import Final

import yaml

from hack.show import ROOT

RELEASES: Final = ROOT / "tests" / "releases"
ROOMS: Final = (
    "failpoints",
    "inventory",
    "agent",
    "controller",
    "deviceplugin",
    "kube",
    "simulator",
    "yamlfile",
    "kubeletapi",
)
"""Of the agent and of the controller; the command is no part of what is upgraded in a cluster."""


def main(commit: str) -> None:
    chart = yaml.safe_load(_git("show", f"{commit}:charts/tessera/Chart.yaml"))
    folder = RELEASES / chart["version"]
    folder.mkdir(parents=True, exist_ok=True)
    packed = _git("archive", "--prefix=tessera/", f"{commit}:charts/tessera")
    (folder / "chart.tgz").write_bytes(gzip.compress(packed, 9, mtime=0))
    programs = _git("archive", commit, *ROOMS)
    (folder / "programs.tar.xz").write_bytes(lzma.compress(programs, preset=9 | lzma.PRESET_EXTREME))


def _git(*words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=True).stdout


if __name__ == "__main__":
    main(sys.argv[1])
