"""A node's first process: ``python3 -m hack.cluster.nodes.nodeinit SPEC.json``, run as root.

It goes into a mount and a pid namespace of its own and becomes process 1 there; containerd, kubelet and all containers
run beside it. When it is killed, the kernel kills them all and drops every mount: there is nothing to unmount and
nothing to forget. /var/lib, /var/log and /run are the node's own inside, so that the constant paths of kubelet,
containerd and CNI neither collide with another node's nor leave anything on the machine.
"""

import contextlib
import ctypes
import json
import os
import signal
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

_CLONE_NEWNS = 0x00020000
_CLONE_NEWPID = 0x20000000
_MS_NOSUID = 0x2
_MS_NODEV = 0x4
_MS_NOEXEC = 0x8
_MS_BIND = 0x1000
_MS_REC = 0x4000
_MS_PRIVATE = 0x40000
_MS_SHARED = 0x100000
_MNT_DETACH = 2

_libc = ctypes.CDLL(None, use_errno=True)

TUNABLES = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/keys/root_maxbytes": 25000000,
}
"""Sysctls that a kubelet sets at start unless they read so already. It is shown files; the machine keeps its own."""


@dataclass(frozen=True)
class InitSpec:
    lib: str
    log: str
    cdi: str
    tunables: str
    scratch: str
    """A folder on the file system of containerd's root, to try overlayfs on."""
    keep: tuple[str, ...]
    """Folders that stay visible even if they lie below a hidden one: the cluster's, the binaries', the checkout."""
    ready: str
    """Written last: JSON with the snapshotter that works here."""

    def dump(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")


def mount(source: str, target: str, kind: str = "none", flags: int = 0, data: str = "") -> None:
    """mount(2); OSError naming the target if the kernel refuses."""
    arguments = (os.fsencode(source), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), data.encode())
    if _libc.mount(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"mount {kind} {source}: {os.strerror(code)}", target)


def bind(source: str, target: str) -> None:
    mount(source, target, flags=_MS_BIND | _MS_REC)


def hide(spec: InitSpec) -> None:
    """Put the node's own folders over the machine's, and what must stay visible back on top."""
    visible = [(path, os.open(path, os.O_PATH | os.O_DIRECTORY)) for path in spec.keep]
    bind(spec.lib, "/var/lib")
    bind(spec.log, "/var/log")
    mount("tmpfs", "/run", "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=755")
    for name in ("cdi", "containerd", "lock", "netns"):
        Path("/run", name).mkdir()
    bind(spec.cdi, "/run/cdi")
    for path, fd in visible:
        if is_hidden(path):
            Path(path).mkdir(parents=True, exist_ok=True)
            bind(f"/proc/self/fd/{fd}", path)
        os.close(fd)


def is_hidden(path: str, hidden: Iterable[str] = ("/var/lib", "/var/log", "/run")) -> bool:
    real = os.path.realpath(path)
    return any(real == each or real.startswith(each + "/") for each in hidden)


def disguise_tunables(folder: str) -> None:
    for name, value in TUNABLES.items():
        target = f"/proc/sys/{name}"
        if Path(target).exists():
            file = Path(folder, name.replace("/", "."))
            file.write_text(f"{value}\n", encoding="ascii")
            bind(str(file), target)


def snapshotter(scratch: str) -> str:
    """``overlayfs`` where it can be mounted on this file system, else ``native``, which copies."""
    home = Path(scratch)
    names = ("lower", "upper", "work", "merged")
    for name in names:
        (home / name).mkdir(parents=True, exist_ok=True)
    options = ",".join(
        f"{option}={home / name}" for option, name in zip(("lowerdir", "upperdir", "workdir"), names, strict=False)
    )
    try:
        mount("overlay", str(home / "merged"), "overlay", data=options)
    except OSError:
        return "native"
    _libc.umount2(os.fsencode(home / "merged"), _MNT_DETACH)
    return "overlayfs"


def furnish(spec: InitSpec) -> None:
    """Everything the node needs before its first program starts."""
    mount("none", "/", flags=_MS_REC | _MS_PRIVATE)
    mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    chosen = snapshotter(spec.scratch)
    hide(spec)
    disguise_tunables(spec.tunables)
    # Shared among this node's own mounts only: pods may ask for bidirectional propagation.
    mount("none", "/", flags=_MS_REC | _MS_SHARED)
    fresh = Path(spec.ready + ".new")
    fresh.write_text(json.dumps({"snapshotter": chosen}), encoding="utf-8")
    fresh.replace(spec.ready)


def reap_for_ever() -> None:
    """Process 1 inherits every orphan and must bury it. Only SIGKILL from outside ends it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while True:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        signal.sigwait({signal.SIGCHLD})


def main(spec_file: str) -> None:
    """Print the pid of the node's first process, as the machine sees it, and leave it running."""
    data = json.loads(Path(spec_file).read_text(encoding="utf-8"))
    spec = InitSpec(**{**data, "keep": tuple(data["keep"])})
    if _libc.unshare(_CLONE_NEWNS | _CLONE_NEWPID) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"unshare: {os.strerror(code)}")
    child = os.fork()
    if child:
        print(child, flush=True)
        return
    os.setsid()
    furnish(spec)
    with Path(os.devnull).open("r+b") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(nothing.fileno(), 1)
    reap_for_ever()


if __name__ == "__main__":
    main(sys.argv[1])
