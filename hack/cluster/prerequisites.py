"""What the machine must have, checked before anything is started: one message names all that is missing.

Missing Debian packages are installed when we may; the rest (not root, not Debian) only a person can change.
"""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hack.cluster.errors import ClusterError, UsageError

DEBIAN_MINIMUM = 12
ANY_DISTRIBUTION_ENV = "TESSERA_ANY_DISTRIBUTION"
"""Set to 1, this tries a distribution other than Debian."""

CNI_BIN_DIR = Path("/usr/lib/cni")
CNI_PLUGINS = ("bridge", "host-local", "loopback")


@dataclass(frozen=True)
class Machine:
    """The files and programs that the checks read, so that tests can give another machine's."""

    system: str
    euid: int
    os_release: Mapping[str, str]
    has_program: Callable[[str], bool]
    has_file: Callable[[Path], bool]


def parse_os_release(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {key.strip(): value.strip().strip("\"'") for key, _, value in pairs}


def this_machine() -> Machine:
    try:
        release = parse_os_release(Path("/etc/os-release").read_text(encoding="utf-8"))
    except OSError:
        release = {}
    return Machine(
        system=platform.system(),
        euid=os.geteuid(),
        os_release=release,
        has_program=lambda name: shutil.which(name, path=search_path()) is not None,
        has_file=Path.exists,
    )


def search_path() -> str:
    """PATH with the folders of system programs, which a login by ``su`` leaves out."""
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin", "/usr/bin", "/bin"])


def is_debian(release: Mapping[str, str]) -> bool:
    """Debian 12 or newer; a release without a number is testing or unstable."""
    if release.get("ID") != "debian":
        return False
    version = release.get("VERSION_ID", "")
    return not version.isdigit() or int(version) >= DEBIAN_MINIMUM


def missing_packages(machine: Machine, *, kubelets: bool) -> list[str]:
    """Debian packages whose programs are not there."""
    wanted = {"openssl": machine.has_program("openssl"), "iproute2": machine.has_program("ip")}
    if kubelets:
        wanted |= {
            "runc": machine.has_program("runc"),
            "containernetworking-plugins": all(machine.has_file(CNI_BIN_DIR / name) for name in CNI_PLUGINS),
            "busybox-static": machine.has_file(Path("/bin/busybox")),
            "util-linux": machine.has_program("nsenter") and machine.has_program("setsid"),
            "mount": machine.has_program("mount"),
        }
    if not machine.has_file(Path("/etc/ssl/certs/ca-certificates.crt")):
        wanted["ca-certificates"] = False
    return sorted(name for name, present in wanted.items() if not present)


def missing(machine: Machine, *, kubelets: bool, can_install: bool) -> list[str]:
    """One line for each thing that is missing and that we cannot get ourselves."""
    lines = []
    if machine.system != "Linux":
        lines.append(f"Linux (this is {machine.system or 'unknown'})")
    if machine.euid != 0:
        lines.append("root: run it with sudo, or in a virtual machine of your own")
    if not is_debian(machine.os_release) and os.environ.get(ANY_DISTRIBUTION_ENV) != "1":
        here = machine.os_release.get("PRETTY_NAME", "another system")
        lines.append(f"Debian {DEBIAN_MINIMUM} or newer (this is {here}; {ANY_DISTRIBUTION_ENV}=1 tries it anyway)")
    packages = missing_packages(machine, kubelets=kubelets)
    if packages and not can_install:
        lines.append(f"programs of Debian's packages: apt-get install {' '.join(packages)}")
    return lines


def ensure(*, kubelets: bool) -> None:
    """Return when everything is there; UsageError with all that is missing. Installs Debian's packages as root."""
    machine = this_machine()
    can_install = machine.euid == 0 and is_debian(machine.os_release) and machine.has_program("apt-get")
    lines = missing(machine, kubelets=kubelets, can_install=can_install)
    if lines:
        raise UsageError("cannot start a cluster here, missing:\n" + "\n".join(f"  - {line}" for line in lines))
    if packages := missing_packages(machine, kubelets=kubelets):
        install(packages)
        if still := missing_packages(this_machine(), kubelets=kubelets):
            raise UsageError(f"missing after installing {' '.join(packages)}: {' '.join(still)}")


def install(packages: list[str]) -> None:
    """Debian packages, as root. Raises ClusterError."""
    print(f"installing Debian's {', '.join(packages)}", file=sys.stderr, flush=True)
    apt_get_install(*packages)


def apt_get_install(*arguments: str) -> None:
    """``apt-get install`` without recommended packages, with the lists of packages refreshed if need be."""
    base = ["apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=180"]
    install = [*base, "install", "--no-install-recommends", *arguments]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # The lists may be stale or absent: refresh them only when the first try says so.
    for command in (install, [*base, "update"], install):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if command is install and done.returncode == 0:
            return
    raise ClusterError(f"apt-get install {' '.join(arguments)} failed:\n{done.stderr[-2000:].rstrip()}")
