"""``tessera advise --pack``: moves of running workloads that would let waiting ones run, or free whole nodes.

Nothing is carried out.
"""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from rich.text import Text

from cli.access.cluster import Where
from cli.access.offline import Offline
from cli.manifests import WrongInputError, read_documents
from cli.printing.console import Json, aside, show, titled
from cli.printing.table import less, prose
from controller.cluster.config.load import default, load
from controller.cluster.config.settings import ControllerConfig
from controller.cluster.watching.kinds import FOREIGN_QUEUES, QUEUES_OF
from controller.foreign.objects import KINDS
from controller.insight.moveadvice import frees, plans, unlimited
from controller.insight.simulation.documents import Document, InputError, named
from controller.objects.decode import DecodeError, UnknownKindError, decode_object, read_gpu_node
from controller.objects.meta import KubernetesObject
from controller.objects.workload import Workload
from controller.scheduler.engine import Engine
from inventory.api.gpunode import KIND as GPU_NODE
from inventory.words.catalog import plural
from kube.client import Client
from yamlfile import ConfigError

_SYSTEMS = {FOREIGN_QUEUES[resource]: system for system, resource in QUEUES_OF.items()}


async def of_cluster(where: Where, namespace: str | None) -> Json:
    """The moves for the API server's objects. Raises KubeError, click.ClickException."""
    async with Client(where.cluster(), timeout_s=30.0, user_agent="tessera-cli") as client:
        loaded = await Offline.load(client, where, _unlimited)
    for note in loaded.notes:
        aside(note)
    return _body("API server", loaded.engine, loaded.now_s, namespace)


def of_files(files: Iterable[Path], config: Path | None, namespace: str | None) -> Json:
    """The moves for files that hold the same objects. Raises WrongInputError."""
    try:
        settings = _unlimited(default() if config is None else load(config))
        objects = list(_objects(named(read_documents(files))))
    except (ConfigError, InputError) as wrong:
        raise WrongInputError(str(wrong)) from None
    engine, now_s = Engine(settings.engine), time.time()
    for given in sorted(objects, key=lambda given: isinstance(given, Workload)):
        engine.put(given, now_s)
    for system in sorted({_SYSTEMS[type(given)] for given in objects if type(given) in _SYSTEMS}):
        engine.imply(system, now_s)
    return _body("files", engine, now_s, namespace)


def _unlimited(config: ControllerConfig) -> ControllerConfig:
    return msgspec.structs.replace(config, engine=unlimited(config.engine))


def _objects(documents: Iterable[Document]) -> Iterator[KubernetesObject]:
    """The typed objects; kinds that do not matter here are passed over."""
    for document in documents:
        try:
            yield read_gpu_node(document.data) if document.kind == GPU_NODE else decode_object(document.data, KINDS)
        except UnknownKindError:
            continue
        except DecodeError as wrong:
            raise document.error(wrong) from None


def _body(source: str, engine: Engine, now_s: float, namespace: str | None) -> Json:
    found = plans(engine, now_s)
    freed = frees(engine, now_s)
    shown = [plan for plan in found if namespace is None or plan["workload"].startswith(f"{namespace}/")]
    return {
        "source": source,
        "lostGpuSeconds": round(sum(plan["lostGpuSeconds"] for plan in shown), 3),
        "plans": shown,
        "frees": [each for each in freed if namespace is None or _concerns(each, namespace)],
    }


def _concerns(freed: Json, namespace: str) -> bool:
    return any(move["workload"].startswith(f"{namespace}/") for move in freed["moves"])


def show_plans(body: Json, *, wide: bool = False) -> None:
    if not body["plans"]:
        show("no move would let a workload run that waits")
    for plan in body["plans"]:
        lost = f"{plan['lostGpuSeconds']:g} GPU-seconds of work would be lost"
        _show_moves(f"{plan['workload']} in {plan['clusterQueue']}: {lost}", plan["moves"], wide=wide)
    if body["plans"]:
        moves = sum(len(plan["moves"]) for plan in body["plans"])
        lost = f"{body['lostGpuSeconds']:g} GPU-seconds of work would be lost"
        show(Text(f"{len(body['plans'])} would run if {moves} moved; {lost}"))
    for freed in body["frees"]:
        _show_moves(f"node {freed['node']} would be free: {_saves(freed)}", freed["moves"], wide=wide)
    if body["frees"]:
        moves = sum(len(freed["moves"]) for freed in body["frees"])
        lost = sum(freed["lostGpuSeconds"] + freed["restartGpuSeconds"] for freed in body["frees"])
        nodes = plural(len(body["frees"]), "node", "nodes")
        show(Text(f"{nodes} would be free if {moves} moved; {lost:g} GPU-seconds would be lost"))
    else:
        show("no move would free a whole node")


def _saves(freed: Json) -> str:
    """What a free node saves, and what it costs."""
    hours = freed["savesNodeHours"]
    saved = "1 node-hour an hour, for as long as they run" if hours is None else f"{hours:.2f} node-hours"
    restarts = f" and {freed['restartGpuSeconds']:g} by restarts" if freed["restartGpuSeconds"] else ""
    return f"saves {saved}; {freed['lostGpuSeconds']:g} GPU-seconds of work{restarts} would be lost"


def _show_moves(title: str, moves: list[Json], *, wide: bool) -> None:
    table = titled(title, "moves", less("of"), prose("from"), prose("to"), "loses (GPU s)")
    for move in moves:
        nodes = (", ".join(move["from"]), ", ".join(move["to"]))
        table.add_row(move["workload"], move["clusterQueue"], *nodes, f"{move['lostGpuSeconds']:g}")
    show(table, "", wide=wide)
