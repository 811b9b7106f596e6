"""The programs that are compiled from Go modules, each kept in a folder named after what it was built from.

The cache lies outside the checkout, so that a clean clone on the same machine builds nothing. A build happens in a
temporary folder and is moved into place when it is whole: a folder in the cache is always complete.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hack.cluster.errors import ClusterError, UsageError
from hack.cluster.programs import golang
from hack.cluster.programs.progress import Progress

SOURCE = Path(__file__).resolve().parents[1]
KUBERNETES_VERSION = "1.37.2"
OLDER_KUBERNETES: Mapping[str, str] = {"1.36": "1.36.3", "1.35": "1.35.4"}
"""Minor versions that ``$TESSERA_KUBERNETES`` may name in its place, each pinned in ``versions/MINOR/go.mod``."""
KUBERNETES_ENV = "TESSERA_KUBERNETES"
TRAINING_OPERATOR_VERSION = "1.8.1"
COREDNS_VERSION = "1.15.0"
KARPENTER_VERSION = "1.15.0"


@dataclass(frozen=True, kw_only=True)
class Program:
    """What to build: packages that a Go module here pins with all their sums, or of a published one at a version."""

    name: str
    version: str
    binaries: tuple[str, ...]
    """The files that the build leaves."""
    packages: tuple[str, ...]
    """Import paths, or ``.``, as the module here has them; else ``path@version`` as ``go install`` takes it."""
    ldflags: str
    module: Path | None = None
    """The folder of the module here; None for a published one."""
    pins: Path | None = None
    """A folder whose ``go.mod`` and ``go.sum`` stand in for the module's own."""
    toolchain: str = ""
    """A release of Go that the module asks for, which the Go command fetches; empty: the machine's own will do."""

    @property
    def sources(self) -> tuple[Path, ...]:
        """The files that pin the module here and are part of it."""
        if self.module is None:
            return ()
        pins = self.pins or self.module
        return (pins / "go.mod", pins / "go.sum", *sorted(self.module.glob("*.go")))


def kubernetes(minor: str = "") -> Program:
    """Kubernetes' programs, of the version that the tests run with, or of an older ``minor`` (``1.36``)."""
    older = OLDER_KUBERNETES.get(minor)
    version = older or KUBERNETES_VERSION
    major, number, _ = version.split(".")
    stamp = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": number}
    # Without these the server reports v0.0.0 and checks of version skew go wrong.
    flags = " ".join(f"-X k8s.io/component-base/version.{key}={value}" for key, value in stamp.items())
    return Program(
        name="kubernetes",
        version=version,
        binaries=("tessera-kubernetes",),
        packages=(".",),
        ldflags=f"-s -w {flags}",
        module=SOURCE,
        pins=SOURCE / "versions" / f"{major}.{number}" if older else None,
    )


def _training_operator() -> Program:
    """Its requirements are older than Kubernetes' own here, so it has a module and sums of its own."""
    return Program(
        name="training-operator",
        version=TRAINING_OPERATOR_VERSION,
        binaries=("training-operator.v1",),
        packages=("github.com/kubeflow/training-operator/cmd/training-operator.v1",),
        ldflags="-s -w",
        module=SOURCE / "trainingoperator",
    )


def _coredns() -> Program:
    return Program(
        name="coredns",
        version=COREDNS_VERSION,
        binaries=("coredns",),
        packages=(".",),
        ldflags="-s -w",
        module=SOURCE / "coredns",
    )


def _karpenter() -> Program:
    """Karpenter's core with the provider whose nodes kwok plays, and a program that prints their CRDs."""
    return Program(
        name="karpenter",
        version=KARPENTER_VERSION,
        binaries=("kwok", "karpentercrds"),
        packages=("sigs.k8s.io/karpenter/kwok", "."),
        ldflags="-s -w",
        module=SOURCE / "karpenter",
        toolchain="go1.26.9",
    )


def _published(name: str, version: str, paths: tuple[str, ...]) -> Program:
    return Program(
        name=name,
        version=version,
        binaries=tuple(path.rpartition("/")[2] for path in paths),
        packages=tuple(f"{path}@v{version}" for path in paths),
        ldflags="-s -w",
    )


_CONTAINERD = "github.com/containerd/containerd/v2/cmd"
PROGRAMS: Mapping[str, Program] = {
    program.name: program
    for program in (
        kubernetes(os.environ.get(KUBERNETES_ENV, "")),
        _published(
            "containerd",
            "2.4.2",
            (f"{_CONTAINERD}/containerd", f"{_CONTAINERD}/containerd-shim-runc-v2", f"{_CONTAINERD}/ctr"),
        ),
        _published("kwok", "0.8.0", ("sigs.k8s.io/kwok/cmd/kwok",)),
        _published("helm", "4.3.2", ("helm.sh/helm/v4/cmd/helm",)),
        _training_operator(),
        _coredns(),
        _karpenter(),
    )
}


def check_kubernetes(minor: str) -> None:
    """Raises UsageError for a minor version that is not pinned here; none at all is the newest."""
    known = (KUBERNETES_VERSION.rpartition(".")[0], *OLDER_KUBERNETES)
    if minor and minor not in known:
        raise UsageError(f"{KUBERNETES_ENV}: found {minor!r}, expected one of {', '.join(known)}")


def cache_root() -> Path:
    """``$TESSERA_CACHE``, else ``tessera`` in the user's cache folder."""
    if named := os.environ.get("TESSERA_CACHE"):
        return Path(named).resolve()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tessera"


def cache_key(program: Program, sources: Mapping[str, bytes]) -> str:
    """Twelve hex digits that change with the version, the flags and, for the module here, any of its ``sources``."""
    digest = hashlib.sha256(repr((program.version, program.packages, program.ldflags)).encode())
    for name in sorted(sources):
        digest.update(b"\0" + name.encode() + b"\0" + sources[name])
    return digest.hexdigest()[:12]


def folder(program: Program) -> Path:
    """Where the build of ``program`` is or will be."""
    sources = {path.name: path.read_bytes() for path in program.sources}
    return cache_root() / f"{program.name}-{program.version}-{cache_key(program, sources)}"


def build(name: str) -> Path:
    """Folder with the binaries of the program ``name``, built first if need be (one build at a time on a machine).

    Raises UsageError where the environment names a Kubernetes that is not pinned here.
    """
    check_kubernetes(os.environ.get(KUBERNETES_ENV, ""))
    program = PROGRAMS[name]
    target = folder(program)
    if target.is_dir():
        return target
    with _build_lock():
        if target.is_dir():  # another process built it while we waited
            return target
        scratch = Path(tempfile.mkdtemp(prefix=f".{program.name}-", dir=target.parent))
        try:
            _compile(program, scratch)
            scratch.chmod(0o755)
            scratch.rename(target)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return target


def binary(name: str, file: str | None = None) -> Path:
    """A built file of the program ``name``: its first, or ``file``."""
    return build(name) / (file or PROGRAMS[name].binaries[0])


@contextmanager
def _build_lock() -> Iterator[None]:
    cache_root().mkdir(parents=True, exist_ok=True)
    with (cache_root() / "build.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("another build is running on this machine: waiting for it", file=sys.stderr, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        # A build that was killed leaves its scratch folder; under the lock none is in use.
        for stale in cache_root().glob(".*-*"):
            shutil.rmtree(stale, ignore_errors=True)
        yield


def _compile(program: Program, out: Path) -> None:
    go = golang.find(cache_root())
    environment = {**os.environ, "CGO_ENABLED": "0", "GOBIN": str(out), "GOWORK": "off"}
    if program.toolchain:
        environment["GOTOOLCHAIN"] = program.toolchain
    # The user's own GOFLAGS (a module proxy's settings, say) stay; only what changes the result is ours.
    flags = ["-v", "-trimpath", "-buildvcs=false", "-ldflags", program.ldflags]
    if program.module:
        flags += ["-modfile", str(program.pins / "go.mod")] if program.pins else []
        into = out / program.binaries[0] if len(program.packages) == 1 else out
        command = [str(go), "build", *flags, "-o", str(into), *program.packages]
    else:
        # One command: the binaries share most packages, and what is to be built is counted once.
        command = [str(go), "install", *flags, *program.packages]
    with Progress(f"building {program.name} {program.version}") as progress:
        progress.expect(golang.packages_to_build(command, program.module or SOURCE, environment))
        _run_counting(command, program.module or SOURCE, environment, progress)
    for file in program.binaries:
        if not (out / file).is_file():
            raise ClusterError(f"the build of {program.name} left no {file}")


def _run_counting(command: list[str], folder: Path, environment: Mapping[str, str], progress: Progress) -> None:
    """Run a Go build; each package it names counts. Lines that are no package are kept for the error message."""
    messages: list[str] = []
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stderr is not None
        for line in running.stderr:
            if golang.is_package_line(line):
                progress.step()
            elif line.startswith("go: downloading"):
                progress.note("downloading modules")
            else:
                messages.append(line)
    if running.returncode != 0:
        raise ClusterError(f"{' '.join(command[:2])} failed:\n{''.join(messages[-30:]).rstrip()}")
