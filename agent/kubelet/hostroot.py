"""Paths of the host, seen from this process: the agent may run in a container that has the driver's root elsewhere."""

import stat
from collections.abc import Callable
from pathlib import Path, PurePosixPath

MAX_LINKS = 40

Seen = Callable[[Path], Path]
"""A function from a path of the host to the path where this process sees it."""


def as_it_is(path: Path) -> Path:
    """The path itself: outside a container the host's paths are the agent's."""
    return path


def seen_at(driver_root: Path, container_driver_root: Path) -> Seen:
    """The view from a container that has the host's ``driver_root`` at ``container_driver_root``; else as it is."""
    if not container_driver_root.is_dir():
        return as_it_is

    def seen(path: Path) -> Path:
        inside = path.is_relative_to(driver_root)
        return container_driver_root / path.relative_to(driver_root) if inside else path

    return seen


def is_device(path: Path) -> bool:
    """Whether a character device is there, or a link to one."""
    try:
        return stat.S_ISCHR(path.stat().st_mode)
    except OSError:
        return False


class HostRoot:
    """A root folder of the host, with its links: an absolute link leads from that root, not from this process's."""

    def __init__(self, path: Path, seen: Seen = as_it_is) -> None:
        self.path = path
        self._own = seen(path)

    def host(self, inside: str) -> str:
        """The host's path of the file that the root has at ``inside``."""
        return str(self.path / inside.lstrip("/"))

    def real(self, inside: str) -> str | None:
        """The path inside the root to which ``inside`` leads once its links are followed; None where nothing is."""
        todo = [part for part in reversed(PurePosixPath(inside).parts) if part != "/"]
        done: list[str] = []
        links = 0
        while todo:
            part = todo.pop()
            if part == "..":
                del done[-1:]
                continue
            place = self._own.joinpath(*done, part)
            try:
                target = str(place.readlink()) if place.is_symlink() else None
            except OSError:
                return None
            if target is None:
                done.append(part)
                continue
            links += 1
            if links > MAX_LINKS:
                return None
            if target.startswith("/"):
                done = []
            todo += [part for part in reversed(PurePosixPath(target).parts) if part != "/"]
        return "/" + "/".join(done) if self._own.joinpath(*done).exists() else None

    def own(self, real: str) -> Path:
        """The path where this process sees a path that ``real`` gave."""
        return self._own / real.lstrip("/")

    def names(self, folder: str) -> tuple[str, ...]:
        """The names in a folder, sorted; none where there is no such folder."""
        real = self.real(folder)
        try:
            return () if real is None else tuple(sorted(path.name for path in self.own(real).iterdir()))
        except OSError:
            return ()
