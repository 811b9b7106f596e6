"""A root file system of Debian's packages with all that they need, for images that are made on the spot.

Packages are fetched as for a machine that has none, and unpacked into one layer; nothing is installed on this machine,
and no script of theirs is run. What such a script would have made, the caller adds.
"""

import io
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from hack.cluster.errors import ClusterError
from hack.cluster.prerequisites import apt_get_install
from hack.cluster.programs.images import FOLDERS, add_file, base_files, entry, folder_entry

_IN_USR: Final = ("bin", "lib", "lib64", "sbin")
"""Folders of the root that are links into /usr; older releases' packages have files in both."""
_LEFT_OUT: Final = ("usr/include/", "usr/share/doc/", "usr/share/info/", "usr/share/locale/", "usr/share/man/")
_PERL: Final = "/perl"
"""Packages depend on it for their scripts, which are not run: a fifth of what many of them hold."""


def layer(packages: Iterable[str], *, files: Mapping[str, bytes], links: Mapping[str, str]) -> bytes:
    """An uncompressed tar. ``files`` are the caller's own, and ``links`` what they lead to, by path."""
    with tempfile.TemporaryDirectory(prefix="tessera-debian-") as scratch:
        return merged(_trees(_fetched(packages, Path(scratch))), files=files, links=links)


def merged(trees: Iterable[bytes], *, files: Mapping[str, bytes], links: Mapping[str, str]) -> bytes:
    """One tar of several; of two entries for a path the first stays, the caller's before any."""
    out, seen = io.BytesIO(), set(FOLDERS)
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as whole:
        for folder in FOLDERS:
            whole.addfile(folder_entry(folder))
        for path, target in {**{name: f"usr/{name}" for name in _IN_USR}, **links}.items():
            link = entry(path, kind=tarfile.SYMTYPE)
            link.linkname = target
            whole.addfile(link)
            seen.add(path)
        for path, content in {**base_files(), **files}.items():
            add_file(whole, path, content, mode=0o755 if content.startswith(b"#!") else 0o644)
            seen.add(path)
        for tree in trees:
            with tarfile.open(fileobj=io.BytesIO(tree)) as tar:
                _add_tree(whole, tar, seen)
    return out.getvalue()


def _add_tree(whole: tarfile.TarFile, tar: tarfile.TarFile, seen: set[str]) -> None:
    for member in tar:
        member.name = _place(member.name)
        if not member.name or member.name in seen or member.name.startswith(_LEFT_OUT) or _PERL in member.name:
            continue
        seen.add(member.name)
        if member.islnk():
            member.linkname = _place(member.linkname)
        whole.addfile(member, tar.extractfile(member) if member.isreg() else None)


def _place(name: str) -> str:
    """Path from the root, without links on the way; empty for the root and for what is a link there itself."""
    parts = PurePosixPath(name).parts
    if parts[:1] and parts[0] in _IN_USR:
        return str(PurePosixPath("usr", *parts)) if len(parts) > 1 else ""
    return str(PurePosixPath(*parts)) if parts else ""


def _fetched(packages: Iterable[str], folder: Path) -> list[Path]:
    """The packages and all that they depend on, as files below ``folder``. Raises ClusterError."""
    (folder / "archives" / "partial").mkdir(parents=True)
    (folder / "status").touch()
    apt_get_install(
        # The machine's own packages are not counted in, and its cache is not touched.
        *("-o", f"Dir::State::status={folder / 'status'}", "-o", f"Dir::Cache={folder}"),
        *("-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=root", "--download-only", *packages),
    )
    return sorted((folder / "archives").glob("*.deb"))


def _trees(packages: Iterable[Path]) -> Iterator[bytes]:
    for package in packages:
        done = subprocess.run(["dpkg-deb", "--fsys-tarfile", package], capture_output=True, check=False)
        if done.returncode != 0:
            raise ClusterError(f"{package.name}: {done.stderr.decode(errors='replace').strip()}")
        yield done.stdout
