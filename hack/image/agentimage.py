"""An image with agent and controller of a folder of sources, made in seconds: any release, on this machine's Python.

The Dockerfile is how the image is made for real (hack/image/builtimage.py). This one holds the same packages and rooms,
with this machine's Python and the libraries it is linked to in place of a base image. ``python -m hack.image.agentimage
FILE`` makes that of this checkout.
"""

import compileall
import io
import platform
import py_compile
import re
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from pathlib import Path

from hack.cluster.programs.images import Image, archive
from hack.release import ROOMS
from hack.show import ROOT
from inventory import __version__

REPOSITORY = "tessera.test/tessera-agent"
COMMANDS = {"tessera-controller": "controller", "tessera": "cli"}
LEFT_OUT = {"test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3", "site-packages"}
PACKAGE = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==", re.MULTILINE)
SITE = "opt/tessera"
PYTHON = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
"""The interpreter, here and in the image."""


def write(path: Path, *, rooms: Path, tag: str) -> None:
    """Write the image as a tar that ``ctr images import`` takes, with the programs of the folder ``rooms``."""
    # A start that compiles all it imports takes seconds of a processor, and byte code is not written in a container.
    for room in _rooms(rooms):
        compileall.compile_dir(room, quiet=2, invalidation_mode=py_compile.PycInvalidationMode.TIMESTAMP)
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for folder in ("tmp", "proc", "sys", "dev", "etc", "var/lib/tessera"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(entry)
        for source, target in sorted(_files(rooms).items()):
            tar.add(source.resolve(), target, recursive=False)
        for name, main in COMMANDS.items():
            script = f"#!{PYTHON}\nimport sys\nfrom {main}.main import main\nsys.exit(main())\n".encode()
            entry = tarfile.TarInfo(f"bin/{name}")
            entry.mode, entry.size = 0o755, len(script)
            tar.addfile(entry, io.BytesIO(script))
    image = Image(
        tag=tag,
        layer=layer.getvalue(),
        command=[str(PYTHON), "-m", "agent.main"],
        environment={"PYTHONPATH": f"/{SITE}", "PYTHONDONTWRITEBYTECODE": "1", "PATH": "/sbin:/bin"},
    )
    path.write_bytes(archive([image], machine=platform.machine()))


def _files(rooms: Path) -> dict[Path, str]:
    """Every file of the image: where it is here, and where there (without the leading slash)."""
    library = Path(sysconfig.get_path("stdlib", vars={"base": sys.base_prefix, "installed_base": sys.base_prefix}))
    files = {PYTHON: str(PYTHON)[1:]}
    files.update({path: str(path)[1:] for path in _tree(library)})
    site = Path(sysconfig.get_path("purelib"))
    for folder in _packages(site):
        files.update({path: f"{SITE}/{path.relative_to(site)}" for path in _tree(folder)})
    for room in _rooms(rooms):
        files.update({path: f"{SITE}/{path.relative_to(rooms)}" for path in _tree(room)})
    files.update({path: str(path)[1:] for path in _linked([PYTHON, *(p for p in files if ".so" in p.name)])})
    return files


def _rooms(folder: Path) -> list[Path]:
    return [path for path in (folder / name for name in (*ROOMS, "cli")) if path.is_dir()]


def _packages(site: Path) -> Iterator[Path]:
    """What the locked run-time packages put into site-packages, by their RECORD files."""
    from importlib.metadata import distribution

    for name in PACKAGE.findall((ROOT / "requirements/run.txt").read_text()):
        tops = {Path(str(file)).parts[0] for file in distribution(name).files or ()}
        yield from (site / top for top in tops if top != ".." and (site / top).exists())


def _tree(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    for entry in path.iterdir():
        if (
            entry.name in LEFT_OUT
            or entry.name.startswith("config-")
            or entry.name.endswith((".a", ".opt-1.pyc", ".opt-2.pyc"))
        ):
            continue
        yield from _tree(entry)


def _linked(binaries: list[Path]) -> set[Path]:
    """The shared libraries that these are linked to, as the loader finds them here."""
    listed = subprocess.run(["ldd", *binaries], capture_output=True, text=True, check=False).stdout
    return {Path(name) for name in re.findall(r"(?:=> |^\s*)(/\S+) \(0x", listed, re.MULTILINE)}


if __name__ == "__main__":
    write(Path(sys.argv[1]), rooms=ROOT, tag=f"{REPOSITORY}:{__version__}")
