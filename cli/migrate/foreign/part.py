"""Volcano and KAI: their objects, marks, scheduler configurations and chart values."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml

from cli.migrate.chartvalues import KAI, VOLCANO, apply, given
from cli.migrate.foreign import kai, volcano
from cli.migrate.foreign.rows import NotYet, Refused, Rows, told
from cli.migrate.inputs import MOST_VALUES, Inputs, Text, is_replaced, size_of, system_of
from cli.migrate.kueue import replicas_of, several
from cli.migrate.parts import Json, Part, Told
from cli.migrate.steps import held, scaled, scaled_all, services_of, without_webhooks
from cli.words import migrating as say
from controller.foreign.rules.refusedkinds import REFUSED
from controller.foreign.rules.ruled import System
from controller.insight.simulation.documents import Document
from controller.insight.simulation.problems import shown

FIELDS: Final[dict[System, dict[str, Rows]]] = {"volcano": volcano.FIELDS, "kai": kai.FIELDS}
MARKS: Final[dict[System, Rows]] = {"volcano": volcano.MARKS, "kai": kai.MARKS}
"""Labels and annotations of jobs and pods."""
_SYSTEMS: Final[Mapping[System, tuple[str, str]]] = {
    "volcano": ("Volcano", "volcano-system"),
    "kai": ("KAI", "kai-scheduler"),
}
"""The name for people, and the namespace by its own instructions, where no file tells it."""
_KAI_ALONE: Final = frozenset(
    {"consolidation", "stalegangeviction", "elastic", "kubeflow", "ray", "subgrouporder", "taskorder", "nominatednode",
     "dynamicresources", "minruntime", "topology", "gpupack", "gpuspread", "gpusharingorder", "nodeavailability",
     "podaffinity", "snapshot", "resourcetype", "reflectjoborder"}
)  # fmt: skip
_SHARED: Final = ("volcano.sh/gpu-", "volcano.sh/vgpu-")
_ACTIONS: Final = {
    "allocate": "", "backfill": "", "enqueue": "", "preempt": "", "reclaim": "", "consolidation": "",
    "stalegangeviction": "",
    "shuffle": say.NO_RESCHEDULING,
}  # fmt: skip
"""Actions of both schedulers: empty where the controller does the same; else why not."""
_PLUGINS: Final = {
    **dict.fromkeys(("capacity", "conformance", "elastic", "gang", "kubeflow", "minruntime", "nominatednode",
                     "predicates", "priority", "proportion", "ray", "subgrouporder", "taskorder", "topology",
                     "dynamicresources", "network-topology-aware", "gpusharingorder", "resourcetype", "snapshot",
                     "reflectjoborder", "nodeavailability", "podaffinity", "nodeplacement"), ""),
    "gpupack": "",
    "binpack": say.PLACEMENT, "gpuspread": say.PLACEMENT, "nodeorder": say.NODE_ORDER,
    "drf": say.NO_DRF, "overcommit": say.NO_ENQUEUE, "sla": say.NO_SLA, "tdm": say.NO_ZONES,
    "numaaware": say.NO_NUMA, "usage": say.NO_LOAD, "rescheduling": say.NO_RESCHEDULING,
    "extender": say.NO_EXTENDER, "deviceshare": say.NO_DEVICE_SHARE, "task-topology": say.NO_TASK_TOPOLOGY,
    "nodegroup": say.NO_NODE_GROUP, "resourcequota": say.RESOURCE_QUOTA, "pdb": say.NO_BUDGETS,
    "cdp": say.NO_COOL_DOWN, "resource-strategy-fit": say.NODE_ORDER,
}  # fmt: skip
"""Plugins of both schedulers, as ``_ACTIONS``."""


def foreign(system: System, inputs: Inputs) -> Part:
    """The part of one system."""
    documents = inputs.volcano if system == "volcano" else inputs.kai
    charts = inputs.chart("volcano" if system == "volcano" else "kai-scheduler")
    sets = [each for each in inputs.workloads if is_replaced(each) and system_of(each) == system]
    files = [each for each in inputs.scheduler_files if _whose(each) == system]
    if not (documents or charts or sets or files):
        return Part()
    part = Part({"controller": {"enabled": True, "policy": "tessera", system: {"enabled": True}}}, queues=True)
    unchanged = defaultdict[str, list[str]](list)
    for document in documents:
        losses = list(_losses(system, document))
        part.loses(losses)
        if not losses:
            unchanged[document.kind].append(str(document.data["metadata"].get("name")))
    part.keeps(Told(several(kind, names), say.APPLIED_AS_IT_IS) for kind, names in unchanged.items())
    for document in (*documents, *inputs.others):
        part.loses(_marks(system, document))
    for document in charts:
        _chart(system, document.data, part)
    for one in files:
        part.loses(scheduler_losses(one.whose, yaml.safe_load(one.text)))
    _steps(system, sets, part, is_live=inputs.is_live)
    return part


def wrong_files(inputs: Inputs) -> Iterator[str]:
    """A line for every scheduler configuration that cannot be one."""
    for one in inputs.scheduler_files:
        try:
            data = yaml.safe_load(one.text)
        except (yaml.YAMLError, ValueError, RecursionError) as wrong:
            mark = getattr(wrong, "problem_mark", None)
            yield f"{one.place(mark.line + 1 if mark else 1)}: found no YAML, expected actions and tiers. Correct it"
            continue
        tiers = data.get("tiers") if isinstance(data, dict) else None
        actions = data.get("actions") if isinstance(data, dict) else None
        if actions is not None and not isinstance(actions, str):
            yield say.found_expected(one.place(1), "actions", shown(actions), "names with commas between them")
        if size_of(data) > MOST_VALUES:
            yield say.found_expected(one.place(1), "tiers", "aliases of aliases", "a list of plugins")
        if tiers is not None and not isinstance(tiers, list):
            yield say.found_expected(one.place(1), "tiers", shown(tiers), "a list")


def _whose(one: Text) -> System:
    """The scheduler that a configuration is for, by the names of its actions and plugins."""
    words = set(one.text.replace(",", " ").replace('"', " ").replace(":", " ").split())
    return "kai" if words & _KAI_ALONE or (one.owner and one.owner[0].startswith("kai")) else "volcano"


def scheduler_losses(whose: str, data: Any) -> Iterator[Told]:
    """Actions and plugins that the controller does not have, and settings of them."""
    if not isinstance(data, dict):
        return
    for action in str(data.get("actions") or "").replace(",", " ").split():
        if why := _ACTIONS.get(action, say.NO_ACTION):
            yield Told(f"{whose}: action {action}", why)
    for tier in data.get("tiers") or ():
        plugins = tier.get("plugins") if isinstance(tier, dict) else None
        for plugin in plugins if isinstance(plugins, list) else ():
            name = str(plugin.get("name")) if isinstance(plugin, dict) else str(plugin)
            if why := _PLUGINS.get(name, say.NO_PLUGIN):
                yield Told(f"{whose}: plugin {name}", why)
            elif isinstance(plugin, dict) and (options := sorted(set(plugin) - {"name"})):
                yield Told(f"{whose}: plugin {name}: {', '.join(options)}", say.NO_OPTIONS)


def _losses(system: System, document: Document) -> Iterator[Told]:
    """What of an object has no effect here, or keeps it from being accepted."""
    refused = next((row for row in REFUSED if (row.kind, row.group) == (document.kind, document.group)), None)
    what = f"{document.kind} {document.data['metadata'].get('name')}"
    if refused is not None:
        yield Told(what, refused.sentence.partition(": ")[2])
        return
    kinds = {(kind.partition("/")[0], kind.partition(" ")[2]): rows for kind, rows in FIELDS[system].items()}
    table = kinds.get((document.group, document.kind))
    if table is None:
        yield Told(what, say.NOBODY_READS)
        return
    for resource in sorted(set(_shared(document.data.get("spec")))):
        yield Told(f"{what}: {resource}", say.NO_DEVICE_SHARE)
    for path in dict.fromkeys(_leaves(document.data.get("spec"), "spec")):
        row = next((table[each] for each in _upwards(path) if each in table), None)
        if isinstance(row, NotYet | Refused):
            yield Told(f"{what}: {path}", told(row).partition(", found ")[0].replace("`", ""))


def _shared(value: Any) -> Iterator[str]:
    """Names of resources that its device plugins share GPUs by, wherever amounts stand in a spec."""
    if isinstance(value, list):
        for inner in value:
            yield from _shared(inner)
    for key, inner in value.items() if isinstance(value, dict) else ():
        if str(key).startswith(_SHARED) and not isinstance(inner, dict | list):
            yield str(key)
        else:
            yield from _shared(inner)


def _leaves(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}")
    elif isinstance(value, list) and value:
        for inner in value:
            yield from _leaves(inner, f"{path}[]")
    elif value not in (None, "", [], {}):
        yield path


def _upwards(path: str) -> Iterator[str]:
    while path:
        yield path
        path = path.removesuffix("[]") if path.endswith("[]") else path.rpartition(".")[0]


def _marks(system: System, document: Document) -> Iterator[Told]:
    """Labels and annotations of an object and its pod template that nothing reads."""
    for metadata in (document.data.get("metadata"), given(document.data, "spec.template.metadata")):
        for key in ("labels", "annotations"):
            marks = metadata.get(key) if isinstance(metadata, dict) else None
            for mark in marks if isinstance(marks, dict) else ():
                row = MARKS[system].get(str(mark))
                if isinstance(row, NotYet):
                    what = f"{document.kind} {document.data['metadata'].get('name')}: {mark}"
                    yield Told(what, told(row).replace("`", ""))


def _chart(system: System, values: Json, part: Part) -> None:
    chart = f"{_SYSTEMS[system][0]}'s chart"
    apply(values, VOLCANO if system == "volcano" else KAI, chart, part)
    if system == "volcano" and (name := given(values, "custom.scheduler_name")):
        part.take("controller.volcano.schedulerNames", [str(name)])


def _steps(system: System, sets: list[Document], part: Part, *, is_live: bool) -> None:
    words, space = _SYSTEMS[system]
    daemons = [each for each in sets if each.kind == "DaemonSet"]
    sets = [each for each in sets if each.kind == "Deployment"]
    places = [
        (str(each.data["metadata"].get("namespace") or "default"), str(each.data["metadata"]["name"])) for each in sets
    ]
    # The namespace by the system's own instructions is its own; another may have webhooks of others.
    found = [services_of(at, [name]) if at != space else services_of(space) for at, name in places]
    services = "|".join(dict.fromkeys(found or [services_of(space)]))
    part.before(without_webhooks(say.drop_webhooks(words), services, f"before-{system}-webhooks"))
    if sets:
        # An operator comes first, as it would start the others again.
        sets.sort(key=lambda each: "operator" not in str(each.data["metadata"]["name"]))
        for each in sets:
            metadata = each.data["metadata"]
            at = (str(metadata.get("namespace") or "default"), str(metadata["name"]))
            part.before(scaled(say.stop_controller(words, at[1]), *at, replicas_of(each)))
    elif not is_live:
        part.before(scaled_all(say.stop_all(words, space), space))
    for each in daemons:
        name = str(each.data["metadata"]["name"])
        part.before(held(say.stop_agent(words, name), str(each.data["metadata"].get("namespace") or "default"), name))
        part.lose(f"DaemonSet {name}", say.COLOCATION)
