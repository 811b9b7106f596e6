"""A control plane and a controller on it, as benchmarks measure them: CPU, memory, writes from the audit log."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import psutil

from hack.bench.compiled import compile_for
from hack.cluster import Cluster, Spec, waiting

ROOT = Path(__file__).parents[3]
CORES = psutil.cpu_count() or 1
POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, verbs: [get, list, watch]}
- {level: Metadata}
"""


@contextmanager
def audited(
    name: str,
    folder: Path,
    *,
    without: Sequence[str] = (),
    flags: Mapping[str, object] = MappingProxyType({}),
    kwok_nodes: int = 0,
    gates: str = "",
) -> Iterator[Cluster]:
    """A control plane that writes each change into ``audit.log`` in the folder.

    ``without``: controllers of the controller manager that do not run; ``flags``: more of the API server's;
    ``kwok_nodes``: how many nodes are played; ``gates``: feature gates of all of it, as ``A=true,B=true``.
    """
    policy = folder / "policy.yaml"
    policy.write_text(POLICY)
    arguments: dict[str, object] = {
        "audit-policy-file": policy,
        "audit-log-path": folder / "audit.log",
        "audit-log-mode": "batch",
        "audit-log-batch-max-wait": "1s",
        "audit-log-batch-buffer-size": 100_000,
        **flags,
    }
    left_out = ",".join(f"-{controller}" for controller in without)
    gated = (f"--feature-gates={gates}",) if gates else ()
    spec = Spec(
        nodes=(),
        kwok_nodes=kwok_nodes,
        apiserver_args=(*(f"--{key}={value}" for key, value in arguments.items()), *gated),
        controller_manager_args=(*((f"--controllers=*,{left_out}",) if left_out else ()), *gated),
        scheduler_args=gated,
    )
    with Cluster.up(name, spec) as cluster:
        yield cluster


def established(cluster: Cluster) -> bool:
    """`kubectl wait` will not do: it fails on a CRD that has no conditions yet."""
    crds = json.loads(cluster.kubectl("get", "crd", "-o", "json"))["items"]
    holds = [
        any(
            condition["type"] == "Established" and condition["status"] == "True"
            for condition in (crd.get("status") or {}).get("conditions") or ()
        )
        for crd in crds
    ]
    return bool(holds) and all(holds)


@contextmanager
def started(name: str, command: Sequence[str], log: Path) -> Iterator[psutil.Process]:
    """The process of a controller (``python -m MODULE ...``) until the block ends."""
    env = compile_for(command[:3])
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=ROOT, env=env)
    try:
        yield psutil.Process(process.pid)
    except BaseException:
        print(f"bench: the end of the {name} controller's log:\n{log.read_text()[-3000:]}", file=sys.stderr)
        raise
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


def machine_cpu_s() -> float:
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)


def peak_mib(process: psutil.Process) -> float:
    """The kernel's own high-water mark: ``ru_maxrss`` would count the parent from before the exec."""
    return memory_mib(process, "VmHWM")


def memory_mib(process: psutil.Process, name: str) -> float:
    """A line of the process's status in ``/proc``."""
    text = Path(f"/proc/{process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith(f"{name}:")) / 1024


def writes_in(log: Path, generator: str, *, expected: int) -> Counter[str]:
    """The controller's writes: see ``writes_by``."""
    return of_ours(writes_by(log, generator, expected=expected), generator)


def of_ours(found: Mapping[str, Counter[str]], generator: str) -> Counter[str]:
    """Of the writes by user agent those of the controller: the others are the control plane's, kubectl's and kwok's."""
    ours = (agent for agent in found if agent != generator and not agent.startswith(("kube", "kwok")))
    return sum((found[agent] for agent in ours), Counter())


def writes_by(log: Path, generator: str, *, expected: int) -> dict[str, Counter[str]]:
    """Writes by user agent. The log is complete when the generator's are all in it."""
    by_agent: dict[str, Counter[str]] = {}

    def complete() -> bool:
        by_agent.clear()
        for line in log.read_text().splitlines():
            entry = json.loads(line)
            agent = entry.get("userAgent", "").split("/")[0].split(" ")[0]
            where = entry.get("objectRef", {})
            what = "/".join(filter(None, (where.get("resource"), where.get("subresource"))))
            by_agent.setdefault(agent, Counter())[what] += 1
        return by_agent.get(generator, Counter()).total() >= expected

    waiting.until(complete, f"{expected} writes of the generator in the audit log", timeout_s=30.0, every_s=0.5)
    if (seen := by_agent[generator].total()) != expected:
        raise RuntimeError(f"the audit log has {seen} writes of the generator, who made {expected}")
    return by_agent
