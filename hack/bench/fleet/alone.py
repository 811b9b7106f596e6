"""The engine alone with a fleet, each size in a process of its own: objects are read from JSON, taken in, and all that
waits is tried. CPU seconds and memory, without an API server; the objects as they were read are kept, as watches do.
"""

import gc
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import psutil
from msgspec import Struct

from controller.cluster.config.load import default
from controller.cluster.watching.kinds import TYPES, reader
from controller.objects.core import Namespace
from controller.objects.decode import decode
from controller.objects.meta import KubernetesObject
from controller.objects.workload import Workload
from controller.scheduler.decisions.decisions import Admitted
from controller.scheduler.engine import Engine
from hack.bench.decisions.engineload import NOW_S, echoed
from hack.bench.fleet import objects
from hack.bench.fleet.shape import Fleet, fleet
from hack.bench.throughput.measuring import ROOT, peak_mib

LATE: Final = 200
"""Workloads that come when all else has been tried: what one decision costs then."""
_BATCH: Final = 5_000


class Costs(Struct, frozen=True):
    """CPU seconds, ``decision_ms`` each; ``tried`` workloads were decided on at first, ``admitted`` of them let in."""

    objects: int
    read_s: float
    taken_in_s: float
    first_cycle_s: float
    all_tried_s: float
    decision_ms: float
    validated_s: float
    peak_mib: float
    tried: int
    admitted: int


def costs(factor: float) -> Costs:
    """Of the fleet of that factor, in a fresh process."""
    words = [sys.executable, "-m", "hack.bench.fleet.alone", str(factor)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode != 0:
        raise RuntimeError(f"factor {factor:g}: {done.stderr[-1000:]}")
    return msgspec.json.decode(done.stdout, type=Costs)


def measured(of: Fleet) -> Costs:
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)
    engine, spent = Engine(default().engine), dict.fromkeys(("read", "taken in", "first", "all"), 0.0)
    for queue in range(of.queues):
        engine.put(decode({"metadata": {"name": objects.team(queue)}}, Namespace), NOW_S)
    readers = {type_.__name__: reader(type_) for type_ in TYPES.values()}
    every: list[KubernetesObject] = []
    # In batches, so that the JSON of all is never there at once.
    for batch in _batches(objects.everything(of)):
        begun_s = time.process_time()
        read = [readers[kind](raw) for kind, raw in batch]
        spent["read"] += time.process_time() - begun_s
        every += read
        begun_s = time.process_time()
        for one in read:
            engine.put(one, NOW_S)
        spent["taken in"] += time.process_time() - begun_s
    begun_s, tried, admitted = time.process_time(), 0, 0
    while not engine.settled(NOW_S):
        now, let_in = _cycle(engine)
        tried, admitted = tried + now, admitted + let_in
        spent["first"] = spent["first"] or time.process_time() - begun_s
    spent["all"] = time.process_time() - begun_s
    decision_ms = _late(engine, of)
    begun_s = time.process_time()
    engine.validate()
    return Costs(
        objects=len(every),
        read_s=spent["read"],
        taken_in_s=spent["taken in"],
        first_cycle_s=spent["first"],
        all_tried_s=spent["all"],
        decision_ms=decision_ms,
        validated_s=time.process_time() - begun_s,
        peak_mib=peak_mib(psutil.Process()),
        tried=tried,
        admitted=admitted,
    )


def _batches(made: Iterator[objects.Json]) -> Iterator[list[tuple[str, bytes]]]:
    batch: list[tuple[str, bytes]] = []
    for one in made:
        batch.append((one["kind"], msgspec.json.encode(one)))
        if len(batch) == _BATCH:
            yield batch
            batch = []
    yield batch


def _cycle(engine: Engine) -> tuple[int, int]:
    """How many were tried and let in; the status of the latter comes back as by a watch."""
    decisions = engine.cycle(NOW_S)
    let_in = [decision for decision in decisions.made if isinstance(decision, Admitted)]
    for decision in let_in:
        engine.put(echoed(decision.status()), NOW_S)
    return decisions.tried, len(let_in)


def _late(engine: Engine, of: Fleet) -> float:
    """Milliseconds for each of some workloads of a new shape that come one by one."""
    read, spent_s, tried = reader(Workload), 0.0, 0
    for number, waiting in zip(range(LATE), of.waits(), strict=False):
        body: Any = objects.pending(waiting._replace(number=of.pending + number))
        container = body["spec"]["podSets"][0]["template"]["spec"]["containers"][0]
        container["image"] = f"registry.example/late:{number}"
        workload = read(msgspec.json.encode(body))
        begun_s = time.process_time()
        engine.put(workload, NOW_S)
        while not engine.settled(NOW_S):
            tried += _cycle(engine)[0]
        spent_s += time.process_time() - begun_s
    return 1000 * spent_s / max(1, tried)


if __name__ == "__main__":
    print(json.dumps(msgspec.to_builtins(measured(fleet(float(sys.argv[1]))))))
