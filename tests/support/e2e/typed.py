"""What a person types who follows a page: its commands, read from the page, in a shell at a real cluster."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack.cluster.cluster import Cluster
from hack.cluster.programs import binaries

ROOT: Final = Path(__file__).parents[3]
DOCS: Final = ROOT / "docs"
LATE_S: Final = 300.0


def commands(page: str, heading: str) -> list[str]:
    """The lines of the shell blocks below a heading, up to the next of its level or above."""
    text = (DOCS / page).read_text()
    found = re.search(rf"^(#+) {re.escape(heading)}\n(.*?)(?=^#{{1,2}} |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"{page} has no heading {heading}"
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```", found[2], re.MULTILINE | re.DOTALL)
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    assert lines, f"{page}, {heading}: no command"
    return [line for line in lines if not line.startswith("#")]


@dataclass(frozen=True)
class Shell:
    """kubectl, helm and the project's own commands are in its PATH; it stands in the repository's root."""

    environment: Mapping[str, str]

    @classmethod
    def at(cls, cluster: Cluster, folder: Path) -> "Shell":
        programs = folder / "bin"
        programs.mkdir(parents=True)
        command, environment = cluster.kubectl_command()
        for name, words in (("kubectl", command), ("helm", [str(binaries.binary("helm"))])):
            shim = programs / name
            shim.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
            shim.chmod(0o755)
        path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), environment.get("PATH", "")])
        homes = {f"HELM_{kind}_HOME": str(folder / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
        return cls({**environment, **homes, "PATH": path, "KUBECONFIG": str(cluster.kubeconfig)})

    def run(self, line: str, *, code: int = 0) -> str:
        """What it prints on standard output; where it is to fail, on standard error."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", line],
            cwd=ROOT,
            env=dict(self.environment),
            capture_output=True,
            text=True,
            check=False,
            timeout=LATE_S,
        )
        assert done.returncode == code, f"{line}\n{done.stdout}{done.stderr}"
        return done.stderr if code else done.stdout

    def follow(self, page: str, heading: str, otherwise: Mapping[str, str] | None = None, *, leave: str = "-") -> None:
        """All commands below a heading, in their order, with what a site says ``otherwise`` than the page.

        Those of the program ``leave`` are left out.
        """
        for line in commands(page, heading):
            said = line
            for words, instead in (otherwise or {}).items():
                said = said.replace(words, instead)
            if not said.startswith(f"{leave} "):
                self.run(said)
