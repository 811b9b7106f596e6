"""Bytecode for the processes that benchmarks start, compiled before they are measured, as in the image."""

import functools
import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]


def compile_for(command: Sequence[str]) -> Mapping[str, str]:
    """The environment in which nothing is left to be compiled of what the command imports at once; it says its usage
    and ends.
    """
    env = as_in_the_image()
    subprocess.run([*command, "--help"], cwd=ROOT, env=env, stdout=subprocess.DEVNULL, check=True)
    return env


@functools.cache
def as_in_the_image() -> Mapping[str, str]:
    """The environment of a daemon whose bytecode is that of the image: without docstrings and columns."""
    into = Path(sys.prefix, "bytecode-of-the-image")
    roots = (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), ROOT)
    program = [sys.executable, "-X", "no_debug_ranges", str(ROOT / "hack/image/leanbytecode.py"), "--loaded", str(into)]
    subprocess.run([*program, *map(str, roots)], check=True, stdout=subprocess.DEVNULL)
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(into)}
