"""Container images made on the spot, since no registry can be reached: a layer, a config and a manifest in one tar."""

import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from hack.cluster.controlplane.render import PAUSE_IMAGE, TEST_IMAGE
from hack.cluster.errors import ClusterError

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
PUBLIC_CUDA_IMAGE: Final = "nvcr.io/nvidia/cuda:12.4.1-base-ubuntu22.04"
"""Of examples that run a command. On a test cluster the test image stands in for it: nothing is pulled there."""
PUBLIC_PAUSE_IMAGE: Final = "registry.k8s.io/pause:3.10"
"""Of examples that run none."""
FOLDERS = ("dev", "etc", "proc", "root", "run", "sys", "tmp", "usr", "var")
_PASSWD = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"
_GROUP = "root:x:0:\nnogroup:x:65534:\n"


@dataclass(frozen=True, kw_only=True)
class Image:
    """One image of one layer. ``layer`` is an uncompressed tar."""

    tag: str
    layer: bytes
    command: Sequence[str]
    environment: Mapping[str, str]


def busybox_layer(busybox: bytes, applets: Iterable[str]) -> bytes:
    """A root file system of one static program and a link to it for each applet. Same input, same bytes."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for folder in ("bin", *FOLDERS):
            tar.addfile(folder_entry(folder))
        add_file(tar, "bin/busybox", busybox, mode=0o755)
        for applet in sorted({name.strip() for name in applets} - {"", "busybox"}):
            link = entry(f"bin/{applet}", kind=tarfile.SYMTYPE)
            link.linkname = "busybox"
            tar.addfile(link)
        for path, content in base_files().items():
            add_file(tar, path, content)
    return out.getvalue()


def base_files() -> dict[str, bytes]:
    """Users and groups of the image, by path."""
    return {"etc/passwd": _PASSWD.encode(), "etc/group": _GROUP.encode()}


def folder_entry(name: str) -> tarfile.TarInfo:
    return entry(name, kind=tarfile.DIRTYPE, mode=0o1777 if name == "tmp" else 0o755)


def entry(name: str, *, kind: bytes, mode: int = 0o755) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.mode = mode
    return info


def add_file(tar: tarfile.TarFile, name: str, content: bytes, *, mode: int = 0o644) -> None:
    info = entry(name, kind=tarfile.REGTYPE, mode=mode)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


def archive(images: Iterable[Image], *, machine: str) -> bytes:
    """A tar that ``ctr images import`` and ``docker load`` take. ``machine`` is the kernel's name, e.g. ``x86_64``."""
    files: dict[str, bytes] = {}
    manifest = []
    for image in images:
        digest = hashlib.sha256(image.layer).hexdigest()
        config = _config(image, digest, _ARCHITECTURES.get(machine, machine))
        config_name = f"{hashlib.sha256(config).hexdigest()}.json"
        files[config_name] = config
        files[f"{digest}.tar"] = image.layer
        manifest.append({"Config": config_name, "RepoTags": [image.tag], "Layers": [f"{digest}.tar"]})
    files["manifest.json"] = json.dumps(manifest).encode()
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in files.items():
            add_file(tar, name, content)
    return out.getvalue()


def _config(image: Image, layer_digest: str, architecture: str) -> bytes:
    settings = {"Cmd": list(image.command), "Env": [f"{key}={value}" for key, value in image.environment.items()]}
    rootfs = {"type": "layers", "diff_ids": [f"sha256:{layer_digest}"]}
    return json.dumps({"architecture": architecture, "os": "linux", "config": settings, "rootfs": rootfs}).encode()


def busybox_image(tag: str, busybox: Path = Path("/bin/busybox")) -> Image:
    """Debian's static busybox with all its applets. Raises ClusterError."""
    done = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=False)
    if done.returncode != 0 or not done.stdout:
        raise ClusterError(f"{busybox} --list failed: {done.stderr.strip()}")
    layer = busybox_layer(busybox.read_bytes(), done.stdout.splitlines())
    return Image(tag=tag, layer=layer, command=["/bin/sh"], environment={"PATH": "/bin"})


def write_test_images(path: Path, *, machine: str) -> None:
    """Write the archive with the test image, the pods' pause image, and both under the names that the examples have."""
    test = busybox_image(TEST_IMAGE)
    pause = replace(test, tag=PAUSE_IMAGE, command=["/bin/busybox", "sleep", "infinity"])
    named = [replace(test, tag=PUBLIC_CUDA_IMAGE), replace(pause, tag=PUBLIC_PAUSE_IMAGE)]
    path.write_bytes(archive([test, pause, *named], machine=machine))
