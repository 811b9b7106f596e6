"""Bytecode for the processes that benchmarks start, compiled before they are measured, as in the image."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
COMPILED: Final[Mapping[str, str]] = {
    **os.environ,
    "PYTHONDONTWRITEBYTECODE": "",
    "PYTHONPYCACHEPREFIX": str(Path(sys.prefix, "bytecode")),
}
"""The environment of such a process. The folder is that of the fast tests: ``make clean`` removes it."""


def compile_for(command: Sequence[str]) -> None:
    """What the command imports at once; it says its usage and ends."""
    subprocess.run([*command, "--help"], cwd=ROOT, env=COMPILED, stdout=subprocess.DEVNULL, check=True)
