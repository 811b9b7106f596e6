"""The agent on any ``libnvidia-ml``, against the kubelet stand-in: ``make foreign-nvml LIB=path``.

    library -> Reading (its C functions alone)  \
                                                 > compared -> Findings, one line each
    library -> agent -> kubelet stand-in        /

What the library does not have is said as that; what the agent makes of it otherwise than the library says is wrong.
"""

import argparse
import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import click
import grpc.aio
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from agent.hardware.gpus import sysfs_bus_id
from agent.telemetry.fields import FIELDS, FieldKind
from deviceplugin.testing import StandInKubelet
from hack.agents import AgentProcess
from hack.nvmlreading import USEFUL, GpuFacts, Reading
from hack.show import ROOT
from inventory.devices import Gpu

STUB = ROOT / "tests/e2e/nvml/nvml_stub.c"
NAME = "libnvidia-ml.so.1"
GPU = "nvidia.com/gpu"
MIG = "nvidia.com/mig-"
WAIT_S = 20.0
_WATCHED_S = 2.0
"""Four probes: what takes a GPU out without a fault does so by then."""
_LOOK_S = 0.1


class Verdict(StrEnum):
    OK = "ok"
    ABSENT = "absent"
    """The library does not have it."""
    NOT_TRIED = "not tried"
    WRONG = "WRONG"


@dataclass(frozen=True)
class Finding:
    verdict: Verdict
    area: str
    text: str

    def __str__(self) -> str:
        return f"{self.verdict:<10} {self.area:<13} {self.text}"


@dataclass(frozen=True)
class Subject:
    """A library, what its process needs in its environment, and how it is steered: shell commands in which ``{gpu}`` is
    an index and ``{uuid}`` a UUID, empty where there is none.
    """

    library: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    trip: str = ""
    """Makes the GPU raise a fatal XID."""
    reset: str = ""
    """Makes it as if it had been reset."""


class UnexpectedError(Exception):
    """The agent or the kubelet shows something else than the library says; one line."""


def ok(area: str, text: str) -> Finding:
    return Finding(Verdict.OK, area, text)


def absent(area: str, text: str) -> Finding:
    return Finding(Verdict.ABSENT, area, text)


# -- the library -----------------------------------------------------------------------------------------------------


def compile_stub(folder: Path, *defines: str) -> Path:
    """The C library of our tests. Raises click.ClickException without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise click.ClickException("neither cc nor gcc is on PATH (Debian: apt-get install gcc libc6-dev)")
    made = folder / NAME
    words = [compiler, "-shared", "-fPIC", "-O1", *defines, f"-Wl,-soname,{NAME}", "-o", str(made), str(STUB)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise click.ClickException(f"{STUB}: {done.stderr.strip()}")
    return made


def read(subject: Subject) -> Reading:
    """In a process of its own."""
    words = [sys.executable, "-m", "hack.nvmlreading", str(subject.library)]
    around = {**os.environ, **subject.environment}
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=WAIT_S, cwd=ROOT, env=around)
    except subprocess.TimeoutExpired:
        return Reading(problem=f"it did not answer within {WAIT_S:.0f} s")
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()[-1:] or [""]
        return Reading(problem=f"the process that loaded it ended with {done.returncode}: {said[0]}")
    return msgspec.json.decode(done.stdout, type=Reading)


def of_library(reading: Reading) -> Iterator[Finding]:
    """What can be said without the agent."""
    if reading.problem:
        yield Finding(Verdict.WRONG, "library", reading.problem)
        return
    uuids = [gpu.uuid for gpu in reading.gpus]
    if not uuids:
        yield Finding(Verdict.WRONG, "library", "it has no GPUs")
    elif None in uuids or len(set(uuids)) < len(uuids):
        yield Finding(Verdict.WRONG, "library", f"a GPU has no UUID, or two have one: {uuids}")
    else:
        yield ok("library", f"driver {reading.driver}, {len(uuids)} GPUs")
    for what, names in USEFUL.items():
        if gone := [name for name in names if name in reading.missing]:
            yield absent("library", f"{what}: without {', '.join(gone)}")


# -- the agent on it -------------------------------------------------------------------------------------------------


class Bench:
    """An agent on the library, and the kubelet stand-in it talks to."""

    def __init__(self, folder: Path, subject: Subject, reading: Reading, strategy: str) -> None:
        self.reading, self.subject = reading, subject
        self.kubelet = StandInKubelet(folder / "kubelet")
        links = folder / "lib"
        links.mkdir(parents=True)
        (links / NAME).symlink_to(subject.library)
        folders = [str(links), str(subject.library.parent), os.environ.get("LD_LIBRARY_PATH", "")]
        self.agent = AgentProcess(
            folder=folder / "agent",
            fleet=None,
            kubelet_dir=folder / "kubelet",
            config=f"version: v1\nflags: {{migStrategy: {strategy}}}\n"
            "health: {probationSeconds: 1, probeIntervalSeconds: 0.5}\n",
            flags=["--metrics-interval", "1"],
            environment={**subject.environment, "LD_LIBRARY_PATH": os.pathsep.join(filter(None, folders))},
        )

    @property
    def uuids(self) -> set[str]:
        return {gpu.uuid or "" for gpu in self.reading.gpus}

    def healthy(self, resource: str = GPU) -> set[str]:
        found = self.kubelet.endpoints.get(resource)
        return set() if found is None else found.healthy

    async def until(self, holds: Callable[[], bool], what: Callable[[], str]) -> None:
        """Raises UnexpectedError with ``what`` is there instead."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + WAIT_S
        while not holds():
            if loop.time() > end_s:
                raise UnexpectedError(what())
            await asyncio.sleep(_LOOK_S)

    async def healthy_are(self, expected: set[str]) -> None:
        await self.until(
            lambda: self.healthy() == expected,
            lambda: f"healthy for the kubelet are {sorted(self.healthy())}, expected {sorted(expected)}",
        )


async def discovery(bench: Bench) -> list[Finding]:
    await bench.until(lambda: bool(bench.kubelet.endpoints), lambda: f"nothing was registered: {last(bench)}")
    gpus: dict[str, Gpu] = {gpu.uuid: gpu for gpu in bench.agent.report().node.gpus}
    differences = [text for gpu in bench.reading.gpus for text in _differences(gpu, gpus.get(gpu.uuid or ""))]
    if differences or gpus.keys() != bench.uuids:
        raise UnexpectedError("; ".join(differences) or f"found {sorted(gpus)}, expected {sorted(bench.uuids)}")
    products = sorted({f"{gpu.product}, {gpu.memory_mib} MiB" for gpu in gpus.values()})
    return [ok("discovery", f"{len(gpus)} GPUs as the library tells them: {'; '.join(products)}")]


def _differences(said: GpuFacts, gpu: Gpu | None) -> Iterator[str]:
    if gpu is None:
        yield f"{said.uuid} was not found"
        return
    bus_id = None if said.bus_id is None else sysfs_bus_id(said.bus_id)
    for what, expected in (
        ("product", said.name),
        ("minor", said.minor),
        ("memory_mib", said.memory_mib),
        ("pci_bus_id", bus_id),
        ("mig_enabled", bool(said.mig)),
    ):
        if expected is not None and (value := getattr(gpu, what)) != expected:
            yield f"{said.uuid}: {what} is {value!r}, expected {expected!r}"


async def registration(bench: Bench) -> list[Finding]:
    await bench.healthy_are(bench.uuids)
    await bench.kubelet.restart()
    await bench.healthy_are(bench.uuids)
    return [ok("registration", f"{GPU} with {len(bench.uuids)} devices, and again after the kubelet's restart")]


async def allocation(bench: Bench) -> list[Finding]:
    one = await bench.kubelet.allocate(GPU, 1, pod="one")
    pods = {one.devices[0]: "one"}
    if len(bench.uuids) > 1:
        rest = await bench.kubelet.allocate(GPU, len(bench.uuids) - 1, pod="rest")
        pods |= dict.fromkeys(rest.devices, "rest")
        visible = set(rest.response.envs["NVIDIA_VISIBLE_DEVICES"].split(","))
        if visible != set(rest.devices):
            raise UnexpectedError(f"NVIDIA_VISIBLE_DEVICES names {sorted(visible)}, allocated was {rest.devices}")
    if one.response.envs["NVIDIA_VISIBLE_DEVICES"] != one.devices[0]:
        raise UnexpectedError(f"NVIDIA_VISIBLE_DEVICES is {one.response.envs}, allocated was {one.devices}")

    def held() -> dict[str, str]:
        return {str(found.device): found.holder.pod for found in bench.agent.report().holders}

    await bench.until(lambda: held() == pods, lambda: f"held by pods are {held()}, expected {pods}")
    for pod in set(pods.values()):
        bench.kubelet.delete(pod)
    return [ok("allocation", f"each of {len(pods)} GPUs to one pod, and known by its holder")]


async def health(bench: Bench) -> list[Finding]:
    await asyncio.sleep(_WATCHED_S)
    await bench.healthy_are(bench.uuids)
    report = bench.agent.report()
    if report.faults or not report.driver_up:
        raise UnexpectedError(f"faults are open: {report.faults}")
    findings = [ok("health", f"probes find all {len(bench.uuids)} GPUs healthy")]
    deaf = [number for number, gpu in enumerate(bench.reading.gpus) if not gpu.event_types]
    if deaf:
        return [*findings, absent("events", f"GPUs {deaf} have no XID events: their health comes from probes alone")]
    if "no XID events" in bench.agent.log():
        raise UnexpectedError("the library has XID events and the agent does not hear them")
    return [*findings, *await events(bench)]


async def events(bench: Bench) -> list[Finding]:
    """The last GPU is tripped: a library that forgets whose event it is would name another."""
    number = len(bench.reading.gpus) - 1
    victim = bench.reading.gpus[number].uuid or ""
    if not bench.subject.trip:
        return [Finding(Verdict.NOT_TRIED, "events", "they are listened to; TRIP names no command that raises one")]
    _command(bench.subject.trip, number, victim)
    await bench.healthy_are(bench.uuids - {victim})
    await asyncio.sleep(_WATCHED_S)
    await bench.healthy_are(bench.uuids - {victim})
    reasons = sorted({change.reason for change in bench.agent.report().history if change.gpu == victim})
    findings = [ok("events", f"GPU {number}, and no other, is out: {', '.join(reasons)}")]
    if not bench.subject.reset:
        return [*findings, Finding(Verdict.NOT_TRIED, "reset", "RESET names no command: the GPU stays out")]
    _command(bench.subject.reset, number, victim)
    await bench.healthy_are(bench.uuids)
    return [*findings, ok("reset", f"GPU {number} is back after a reset")]


def _command(command: str, number: int, uuid: str) -> None:
    words = command.replace("{gpu}", str(number)).replace("{uuid}", uuid)
    done = subprocess.run(["sh", "-c", words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise UnexpectedError(f"{words}: exit {done.returncode}: {done.stderr.strip()}")


async def metrics(bench: Bench) -> list[Finding]:
    usual = [field.name for field in FIELDS if field.usual and field.kind is not FieldKind.LABEL]

    def shown() -> dict[str, set[str]]:
        """By figure the GPUs that have it."""
        status, text = bench.agent.get("/metrics")
        by_figure: dict[str, set[str]] = {}
        for family in text_string_to_metric_families(text) if status == 200 else ():  # noqa: PLR2004  HTTP's OK
            for sample in family.samples:
                by_figure.setdefault(sample.name, set()).add(sample.labels.get("UUID", ""))
        return by_figure

    gives: list[tuple[str, str, Callable[[GpuFacts], object]]] = [
        ("DCGM_FI_DEV_FB_FREE", "memory", lambda gpu: gpu.memory_mib),
        ("DCGM_FI_DEV_GPU_TEMP", "temperature", lambda gpu: gpu.celsius),
        ("DCGM_FI_DEV_POWER_USAGE", "power", lambda gpu: gpu.milliwatts),
    ]
    expected = {
        name: {gpu.uuid or "" for gpu in bench.reading.gpus if value(gpu) is not None} for name, _, value in gives
    }
    await bench.until(
        lambda: all(uuids <= shown().get(name, set()) for name, uuids in expected.items()),
        lambda: f"the library gives {expected}, shown are { {name: shown().get(name) for name in expected} }",
    )
    here = shown()
    lacking = [name for name in usual if name not in here]
    found = [ok("metrics", f"{len(usual) - len(lacking)} of {len(usual)} usual figures")]
    if lacking:
        found.append(absent("metrics", ", ".join(name.removeprefix("DCGM_FI_") for name in lacking)))
    return found


async def instances(bench: Bench) -> list[Finding]:
    """Run with the strategy ``mixed``."""
    expected = {uuid for gpu in bench.reading.gpus for uuid in gpu.instances}

    def offered() -> set[str]:
        return {uuid for name in bench.kubelet.endpoints if name.startswith(MIG) for uuid in bench.healthy(name)}

    await bench.until(
        lambda: offered() == expected, lambda: f"instances offered are {sorted(offered())}, expected {sorted(expected)}"
    )
    names = sorted(name for name in bench.kubelet.endpoints if name.startswith(MIG))
    grant = await bench.kubelet.allocate(names[0], 1, pod="slice")
    if grant.response.envs["NVIDIA_VISIBLE_DEVICES"] != grant.devices[0]:
        raise UnexpectedError(f"NVIDIA_VISIBLE_DEVICES is {grant.response.envs}, allocated was {grant.devices}")
    return [ok("MIG", f"{len(expected)} instances as {', '.join(names)}, and one allocated")]


def without_instances(reading: Reading) -> Finding | None:
    """Why there is nothing to try of MIG; None where there is."""
    if any(gpu.instances for gpu in reading.gpus):
        return None
    on = [number for number, gpu in enumerate(reading.gpus) if gpu.mig]
    if on:
        return absent("MIG", f"GPUs {on} are in MIG mode and have no instances")
    capable = any(gpu.mig is not None for gpu in reading.gpus)
    return absent("MIG", "no GPU is in MIG mode" if capable else "no GPU has it")


def last(bench: Bench) -> str:
    """The agent's own last word."""
    return next(iter(reversed(bench.agent.log().splitlines())), "the agent says nothing")


# -- the whole -------------------------------------------------------------------------------------------------------

Check = Callable[[Bench], Awaitable[list[Finding]]]
WHOLE: tuple[Check, ...] = (discovery, registration, allocation, metrics, health)


async def examine(subject: Subject, folder: Path) -> list[Finding]:
    """Every finding; ``folder`` is empty, and short enough for sockets below it."""
    reading = read(subject)
    findings = list(of_library(reading))
    if any(problem.verdict is Verdict.WRONG for problem in findings):
        return findings
    findings += await _run(Bench(folder / "whole", subject, reading, "none"), WHOLE)
    nothing = without_instances(reading)
    if nothing is not None:
        return [*findings, nothing]
    return findings + await _run(Bench(folder / "mixed", subject, reading, "mixed"), (instances,))


async def _run(bench: Bench, checks: Sequence[Check]) -> list[Finding]:
    findings: list[Finding] = []
    await bench.kubelet.start()
    bench.agent.start()
    try:
        for check in checks:
            try:
                findings += await check(bench)
            except (UnexpectedError, LookupError, grpc.aio.AioRpcError, click.ClickException) as error:
                findings.append(Finding(Verdict.WRONG, check.__name__, " ".join(str(error).split())))
                if check is discovery:
                    break
    finally:
        findings.append(_stopped(bench))
        await bench.kubelet.stop()
    return findings


def _stopped(bench: Bench) -> Finding:
    code: int | None = None
    with suppress(subprocess.TimeoutExpired):
        code = bench.agent.stop()
    if code is None:
        return Finding(Verdict.WRONG, "end", "the agent does not end when it is told to")
    errors = re.findall(r"^.*level=error.*$", bench.agent.log(), re.MULTILINE)
    if code != 0 or errors:
        return Finding(Verdict.WRONG, "end", f"exit {code}; {(errors or [last(bench)])[0]}")
    return ok("end", "the agent ended in good order and logged no error")


def default(folder: Path, *defines: str) -> Subject:
    """The C library of our tests, steered by files in ``folder``."""
    control = folder / "control"
    control.mkdir(parents=True)
    write = f"echo %s > {control}/.new && mv {control}/.new {control}/%s{{gpu}}"
    return Subject(
        library=compile_stub(folder, *defines),
        environment={"TESSERA_STUB_DIR": str(control)},
        trip=write % (79, "xid"),
        reset=write % (1, "epoch"),
    )


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make foreign-nvml", description="the agent on any libnvidia-ml")
    parser.add_argument("--library", type=Path, help="a libnvidia-ml; without it the C library of our tests")
    parser.add_argument("--trip", default="", help="a command that makes GPU {gpu} ({uuid}) raise a fatal XID")
    parser.add_argument("--reset", default="", help="a command that makes it as if it had been reset")
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="tessera-nvml-") as name:
        folder = Path(name)
        try:
            subject = (
                default(folder)
                if options.library is None
                else Subject(options.library.resolve(), {}, options.trip, options.reset)
            )
        except click.ClickException as error:
            parser.error(error.message)
        found = asyncio.run(examine(subject, folder))
    for problem in found:
        sys.stdout.write(f"{problem}\n")
    return 1 if any(problem.verdict is Verdict.WRONG for problem in found) else 0


if __name__ == "__main__":
    raise SystemExit(main())
