"""NVIDIA's device plugin, feature discovery, MIG manager and dcgm-exporter without their operator: configuration files,
chart values, DaemonSets, and labels of nodes.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

from agent.config.reader import read_tree
from agent.config.sections import SPECIAL
from agent.config.table import FLAG_ALIASES, OPTIONS
from agent.mig.parted import parse as parse_parted
from agent.telemetry.collectors import parse as parse_fields
from cli.migrate.chartvalues import DEVICE_PLUGIN, EXPORTER, apply, given
from cli.migrate.inputs import Inputs, Text, config_managers, is_config_manager, system_of
from cli.migrate.parts import Json, Part, Told, merged
from cli.migrate.podspecs import placed_as
from cli.migrate.steps import held, made_config
from cli.migrate.values import (
    ANYHOW,
    INSIDE,
    READ,
    SET_BY_CHART,
    VALUES,
    as_value,
    expected,
    fits,
    is_interval,
    is_mps_root,
)
from cli.words import migrating as say
from controller.insight.simulation.documents import Document
from inventory.layout.sharing import Replication, SharingMode
from yamlfile import ConfigError, parse_text

_PROGRAMS: Final = {
    "mig": "MIG manager",
    "plugin": "device plugin",
    "mps": "MPS control daemon",
    "discovery": "feature discovery",
    "exporter": "dcgm-exporter",
}
"""NVIDIA's programs that the agent stands in for, by the system of their DaemonSets."""
_DEFAULT_PLUGIN: Final = ("nvidia-device-plugin", "nvdp-nvidia-device-plugin")
"""Namespace and name that a DaemonSet has by NVIDIA's instructions for its chart, where no file tells them."""
_FLAGS: Final = {option.flag: option for option in OPTIONS if option.flag}
_PLUGIN_LABEL: Final = "nvidia.com/device-plugin.config"
_MIG_LABEL: Final = "nvidia.com/mig.config"
_VIRTUAL: Final = "nvidia.com/gpu.workload.config"
_GENERATED: Final = re.compile(r"all-(disabled|enabled|balanced|\d+g\.\d+gb(\.[a-z.]+)?)")
PARTED_KEY: Final = "config.yaml"
FIELDS_KEY: Final = "dcgm-metrics.csv"
_ORDER: Final = tuple(_PROGRAMS)
_FOLLOWED: Final = ("plugin", "discovery", "mps", "mig", "exporter")
"""The order in which DaemonSets give their settings to the agent: one that is there stays as it is."""
_FIRST: Final = ("mig", "plugin", "mps")
"""Those that go before the agent comes: two of them would cut, or serve, the same GPUs."""


def parse_plugin(text: str, file: str) -> tuple[Json, list[str]]:
    """A configuration file's values by the agent's settings, and warnings. Raises ConfigError."""
    return read_tree(parse_text(text, file, forgiving=True), file, SPECIAL)


def wrong_files(inputs: Inputs) -> Iterator[str]:
    """A line for every configuration file that NVIDIA's programs would not take."""
    for one in inputs.plugin_files:
        yield from _wrong(one, parse_plugin)
    for one in inputs.parted_files:
        yield from _wrong(one, parse_parted)
    for one in inputs.field_files:
        yield from _wrong(one, parse_fields)


def _wrong(one: Text, parse: Any) -> Iterator[str]:
    try:
        parse(one.text, "-")
    except ConfigError as wrong:
        yield f"{placed(str(wrong), one)}. Correct it"


def placed(line: str, one: Text) -> str:
    """A message ``-:LINE: ...`` about a text, with the place in the file that it stands in."""
    found = re.match(r"-(?::(\d+))?: ", line)
    if not found:
        return line
    return f"{one.place(int(found[1] or 1))}: {line[found.end() :]}"


def plugin_files(
    inputs: Inputs, part: Part, *, named: str = "", mounted: Collection[tuple[str, ...]] = frozenset()
) -> None:
    """What the plugin's configuration files say. ``named``: the ConfigMap that an operator gives the plugin; without
    one the first ConfigMap with such files is taken, those first that DaemonSets have ``mounted``, and files of their
    own go into the values.
    """
    owners = list(dict.fromkeys(each.owner for each in inputs.plugin_files if each.owner))
    owners.sort(key=lambda each: each not in mounted)
    chosen = next((each for each in owners if named in ("", each[1])), None)
    for owner in owners:
        if owner != chosen:
            part.lose(f"ConfigMap {owner[1]}", say.OTHER_CONFIG)
    if chosen and not named:
        part.take("config.name", chosen[1])
        part.copied(chosen[0], chosen[1], say.PLUGIN_CONFIG)
    if not chosen and not named:
        own = {each.name: each.text for each in inputs.plugin_files if not each.owner}
        if own:
            part.take("config.map", {})
            for name, text in _file_names(own).items():
                part.values["config"]["map"].setdefault(name, text)
    _contents([each for each in inputs.plugin_files if each.owner in ((), chosen)], part)


def _contents(files: Iterable[Text], part: Part) -> None:
    """What the chart has to know of the plugin's files, and the keys that have no effect."""
    roots = set[str]()
    for one in files:
        settings, warnings = parse_plugin(one.text, "-")
        part.loses(Told(one.whose, _sentence(line)) for line in warnings)
        replication = settings.get("layout.replication")
        if isinstance(replication, Replication) and replication.mode is SharingMode.MPS:
            part.take("mps.enabled", True)
            if "mps_root" in settings and is_mps_root(str(settings["mps_root"])):
                part.take("mps.root", str(settings["mps_root"]))
        if settings.get("allocation.pass_device_specs"):
            part.take("compatWithCPUManager", True)
        if "driver.driver_root" in settings:
            roots.add(str(settings["driver.driver_root"]))
    if len(roots) == 1 and (root := roots.pop()).startswith("/"):
        part.take("nvidiaDriverRoot", root)


def _file_names(files: dict[str, str]) -> dict[str, str]:
    """Files by a name that a node's label may have: without the ending of a YAML file."""
    return {re.sub(r"\.ya?ml$", "", name).replace(" ", "-").replace(",", ""): text for name, text in files.items()}


def _sentence(line: str) -> str:
    return re.sub(r"^-:\d+: ", "", line)


def parted_files(inputs: Inputs, part: Part, *, space: str = "", named: str = "") -> None:
    """mig-parted's file: the one of the ConfigMap ``named`` in namespace ``space``, else the first that was read."""
    one = _chosen(inputs.parted_files, named, part)
    _mounted(one, part, "mig.config", space, named, PARTED_KEY, "mig-parted-config", say.MIG_CONFIG)


def field_files(inputs: Inputs, part: Part, *, space: str = "", named: str = "") -> None:
    """dcgm-exporter's list of fields, as ``parted_files``; the fields that NVML does not give are lost."""
    one = _chosen(inputs.field_files, named, part)
    _mounted(one, part, "metrics.collectors", space, named, FIELDS_KEY, "dcgm-exporter-fields", say.FIELDS_CONFIG)
    if one:
        found = parse_fields(one.text, "-")
        for line in (*found.missing, *found.refused):
            name, _, why = _sentence(line).partition(": ")
            part.lose(f"{one.whose}: {name.partition(' as a ')[0]}", why or say.NO_FIELD)


def _chosen(files: list[Text], named: str, part: Part) -> Text | None:
    """The file that counts: that of the ConfigMap ``named``, or one of its own, which is taken for what stands in the
    ConfigMap; without a name the first. The others are lost.
    """
    fitting = [each for each in files if not named or not each.owner or each.owner[1] == named]
    one = min(fitting, key=lambda each: bool(named) and not each.owner, default=None)
    part.loses(Told(each.whose, say.OTHER_CONFIG) for each in files if each is not one)
    return one


def _mounted(one: Text | None, part: Part, path: str, space: str, named: str, key: str, own: str, what: str) -> None:
    """Sets a value that names a ConfigMap, with the step that brings it: a copy, or a new one with a file's text."""
    if one is None and not named:
        return
    if named or (one is not None and one.owner):
        owner = one.owner if one is not None and one.owner else (space, named)
        part.take(path, {"name": owner[1], "key": one.name if one is not None and one.owner else key})
        part.copied(owner[0], owner[1], what)
    elif one is not None:
        part.take(path, {"name": own, "key": key})
        part.make(made_config(own, {key: one.text}, what))


def programs(inputs: Inputs) -> Part:
    """NVIDIA's programs as their own charts and manifests run them, without the operator."""
    return _programs(_sets(inputs), inputs, frozenset(FILES))


def beside_policy(spec: Json, space: str, inputs: Inputs) -> Part:
    """NVIDIA's programs that run beside an operator's ClusterPolicy: DaemonSets that are none of its operands, and
    charts. ``space``: the operator's namespace. Configuration files are theirs where the operator has the part off.
    """
    files = {each for each, part in FILES.items() if (spec.get(part) or {}).get("enabled") is False}
    sets = [each for each in _sets(inputs) if not _is_operand(each, space)]
    if not (sets or inputs.chart("device-plugin") or inputs.chart("dcgm-exporter")):
        return Part()
    return _programs(sets, inputs, files)


def plugin_beside(inputs: Inputs, space: str) -> bool:
    """Whether a device plugin that is none of the operator's serves GPUs."""
    sets = (each for each in _sets(inputs) if system_of(each) == "plugin")
    return bool(inputs.chart("device-plugin")) or any(not _is_operand(each, space) for each in sets)


def unplanned(inputs: Inputs, space: str) -> Iterator[Told]:
    """DaemonSets beside an operator that a plan cannot stop: they do not follow the labels by which nodes go over."""
    for each in _sets(inputs):
        if not _is_operand(each, space):
            yield Told(_named(each), say.BESIDE_OPERATOR)


FILES: Final = {"plugin": "devicePlugin", "mig": "migManager", "exporter": "dcgmExporter"}
"""Systems that have configuration files, and the part of a ClusterPolicy that each is."""
_OPERANDS: Final = frozenset(
    {"gpu-feature-discovery", "nvidia-dcgm-exporter", "nvidia-device-plugin-daemonset",
     "nvidia-device-plugin-mps-control-daemon", "nvidia-mig-manager"}
)  # fmt: skip
"""Names that the operator gives to its DaemonSets of these programs."""
_SERVING: Final = ("plugin", "mps", "mig")
"""Systems in whose place agents come to nodes: feature discovery and the exporter run beside any server of GPUs."""


def _sets(inputs: Inputs) -> list[Document]:
    return [each for each in inputs.workloads if each.kind == "DaemonSet" and system_of(each) in _PROGRAMS]


def _is_operand(document: Document, space: str) -> bool:
    """Whether the operator runs the DaemonSet: it owns it, or, where no owner is told, has it under its own name."""
    metadata = document.data["metadata"]
    owners = metadata.get("ownerReferences")
    if isinstance(owners, list) and owners:
        return any(isinstance(each, dict) and each.get("kind") in ("ClusterPolicy", "GPUCluster") for each in owners)
    return metadata.get("namespace") == space and metadata["name"] in _OPERANDS


def _named(document: Document) -> str:
    return f"DaemonSet {document.data['metadata']['name']}"


def _programs(sets: list[Document], inputs: Inputs, files: Collection[str]) -> Part:
    """``files``: the systems whose configuration files are read here."""
    plugin, exporter = inputs.chart("device-plugin"), inputs.chart("dcgm-exporter")
    loose = inputs.plugin_files or inputs.parted_files or inputs.field_files
    if not (sets or plugin or exporter or loose):
        return Part()
    # Files alone do not tell what serves GPUs today: agents wait until that has left a node.
    serving = [each for each in plugin if given(each.data, "devicePlugin.enabled") is not False]
    part = Part(agent=bool(serving) or any(system_of(each) in _SERVING for each in sets))
    for document in plugin:
        _plugin_values(document.data, part)
    for document in exporter:
        _exporter_values(document.data, part)
    sets.sort(key=lambda each: _FOLLOWED.index(system_of(each) or "exporter"))
    for document in sets:
        _containers(document, part)
    if part.agent or not sets:
        placed_as([each for each in sets if system_of(each) != "mps"], inputs, part)
    if "plugin" in files:
        plugin_files(inputs, part, mounted=_mounted_by(sets))
    if "mig" in files:
        parted_files(inputs, part)
    if "exporter" in files:
        field_files(inputs, part)
    for document in sets:
        _chosen_files(document, inputs, part)
    _stops(sets, plugin, part)
    if exporter and not any(system_of(each) == "exporter" for each in sets):
        part.keep("dcgm-exporter's chart: its DaemonSet", say.NAME_NOT_TOLD)
    return part


def _stops(sets: list[Document], plugin: list[Document], part: Part) -> None:
    """The steps that stop the programs: by their DaemonSets, else by the names that the plugin's chart gives them."""
    programs = [
        (system_of(each) or "", str(each.data["metadata"].get("namespace") or "default"),
         str(each.data["metadata"]["name"])) for each in sets
    ]  # fmt: skip
    if plugin and not sets:
        space, name = _DEFAULT_PLUGIN
        values = [each.data for each in plugin]
        if any(given(each, "devicePlugin.enabled") is not False for each in values):
            programs.append(("plugin", space, name))
            if given(part.values, "mps.enabled"):
                programs.append(("mps", space, f"{name}-mps-control-daemon"))
        if any(given(each, "gfd.enabled") for each in values):
            programs.append(("discovery", space, f"{name}-gpu-feature-discovery"))
    for system, space, name in sorted(programs, key=lambda each: _ORDER.index(each[0])):
        step = held(say.stop_set(_PROGRAMS[system], name), space, name)
        if system in _FIRST:
            part.before(step)
        else:
            part.follow(f"DaemonSet {name}", step)


def _mounted_by(sets: list[Document]) -> set[tuple[str, ...]]:
    """Namespace and name of the ConfigMaps that DaemonSets mount."""
    config_maps = set[tuple[str, ...]]()
    for each in sets:
        space = str(each.data["metadata"].get("namespace") or "default")
        volumes = given(each.data, "spec.template.spec.volumes")
        for volume in volumes if isinstance(volumes, list) else ():
            name = given(volume, "configMap.name") if isinstance(volume, dict) else None
            config_maps |= {(space, str(name))} if name else set()
    return config_maps


def _chosen_files(document: Document, inputs: Inputs, part: Part) -> None:
    """How a DaemonSet's config manager chooses a file where the node's label names none."""
    managers = [each for container in config_managers(document) for each in _listed(container.get("env"))]
    said = {str(each.get("name")): str(each.get("value") or "") for each in managers}
    where, config = _named(document), part.values.get("config")
    default = said.get("DEFAULT_CONFIG", "")
    strategies = [word.strip() for word in said.get("FALLBACK_STRATEGIES", "").split(",") if word.strip()]
    if not config:
        lost = {"DEFAULT_CONFIG": default, "FALLBACK_STRATEGIES": ",".join(strategies)}
        part.loses(Told(f"{where}: {key}={value}", say.FILES_NOT_READ) for key, value in lost.items() if value)
        return
    names = {each.name for each in inputs.plugin_files} | set(config.get("map") or ())
    if default and default not in names:
        part.lose(f"{where}: DEFAULT_CONFIG={default}", say.no_file(default))
    elif default and config.get("default") not in (None, default):
        part.lose(f"{where}: DEFAULT_CONFIG={default}", say.other_set(config["default"]))
    elif default:
        part.take("config.default", default)
    if not set(strategies) <= _STRATEGIES:
        part.lose(f"{where}: FALLBACK_STRATEGIES", say.variable_unfit(", ".join(sorted(_STRATEGIES))))
    elif strategies:
        part.take("config.fallbackStrategies", strategies)


def _listed(value: Any) -> list[Json]:
    """The objects of a list that may be anything."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


_STRATEGIES: Final = frozenset({"empty", "named", "single"})


def _plugin_values(values: Json, part: Part) -> None:
    apply(values, DEVICE_PLUGIN, "device plugin's chart", part)
    if name := given(values, "config.name"):
        part.take("config.name", name)
        part.copied(_DEFAULT_PLUGIN[0], name, say.PLUGIN_CONFIG)
    if strategy := values.get("deviceListStrategy"):
        part.take("deviceListStrategy", strategy.split(",") if "," in strategy else strategy)
    for path, ours in (("nvidiaDriverRoot", "nvidiaDriverRoot"), ("cdi.nvidiaHookPath", "cdi.nvidiaHookPath")):
        value = given(values, path)
        if isinstance(value, str) and value.startswith("/"):
            part.take(ours, value)
        elif value:
            part.lose(f"device plugin's chart: {path}", say.NO_PATH)
    if root := given(values, "mps.root"):
        if is_mps_root(root):
            part.take("mps.root", root)
        else:
            part.lose("device plugin's chart: mps.root", say.MPS_PATH)
    part.tolerates(values.get("tolerations"))
    if "affinity" in values and not values["affinity"]:
        part.take("affinity", None)
    chosen = [("DEVICE_DISCOVERY_STRATEGY", values.get("deviceDiscoveryStrategy"))]
    chosen += [("GFD_NO_TIMESTAMP", given(values, "gfd.noTimestamp")), ("GFD_SLEEP_INTERVAL", given(values, "gfd.sleepInterval"))]  # noqa: E501  # fmt: skip
    if chosen[0][1] == "tegra":
        part.lose("device plugin's chart: deviceDiscoveryStrategy", say.TEGRA)
        chosen = chosen[1:]
    env = [{"name": name, "value": _text(value)} for name, value in chosen if value is not None]
    variables(
        "device plugin's chart: devicePlugin.containers.main.env",
        given(values, "devicePlugin.containers.main.env"),
        part,
    )
    part.runs_with(env)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def variables(where: str, env: Any, part: Part) -> None:
    """A container's variables: those that the agent reads become its own, others are named."""
    own = []
    # The last value of a name that is given twice holds.
    last = {each.get("name"): each for each in env or () if isinstance(each, dict)}
    for variable in last.values():
        name = variable.get("name")
        if not name or name in ANYHOW:
            continue
        if given(variable, "valueFrom.fieldRef"):
            # It tells a program about its own pod.
            continue
        value = str(variable.get("value") or "")
        if name in INSIDE or name.startswith(SET_BY_CHART) or "valueFrom" in variable:
            part.lose(f"{where}[{name}]", say.variable_set(name))
        elif name in VALUES:
            _value(f"{where}[{name}]", name, value, part)
        elif name not in READ:
            part.lose(f"{where}[{name}]", say.variable_unread(name))
        elif not fits(name, value):
            part.lose(f"{where}[{name}]", say.variable_unfit(expected(name)))
        else:
            own.append({"name": name, "value": value})
    part.runs_with(own)


def _value(where: str, name: str, value: str, part: Part) -> None:
    """Sets the chart's value for a variable of ``VALUES``."""
    became = as_value(name, value)
    if isinstance(became, str):
        part.lose(where, became)
    elif became is not None:
        part.take(*became)


def _exporter_values(values: Json, part: Part) -> None:
    apply(values, {path: row for path, row in EXPORTER.items() if "." in path or path not in _OF_PODS}, "dcgm-exporter's chart", part)  # noqa: E501  # fmt: skip
    interval = given(values, "serviceMonitor.interval")
    if interval and is_interval(str(interval)):
        part.take("metrics.serviceMonitor.interval", str(interval))
    elif interval:
        part.lose("dcgm-exporter's chart: serviceMonitor.interval", say.INTERVAL)
    variables("dcgm-exporter's chart: extraEnv", values.get("extraEnv"), part)
    arguments("dcgm-exporter's chart: arguments", values.get("arguments"), part)


_OF_PODS: Final = frozenset(
    {"nodeSelector", "podAnnotations", "podLabels", "priorityClassName", "runtimeClassName", "tolerations"}
)
"""Values of an exporter's pods: the agent's pods follow the device plugin's."""


def arguments(where: str, words: Any, part: Part) -> None:
    """Arguments of NVIDIA's programs: those that are the agent's flags too become variables, others are named."""
    left = [str(word) for word in words or ()]
    while left:
        word = left.pop(0)
        flag, equals, value = word.partition("=")
        flag = {"-a": "--address", "-f": "--collectors", "-c": "--collect-interval", "-d": "--devices"}.get(flag, flag)
        if not flag.startswith("-"):
            continue
        if not equals and left and not left[0].startswith("-"):
            value = left.pop(0)
        option = _FLAGS.get(FLAG_ALIASES.get(flag, flag))
        if flag == "--collectors":
            if value not in _FIELDS_OF_IMAGE:
                part.lose(f"{where}: {word}", say.FIELD_PATH)
        elif flag == "--address":
            _value(f"{where}: {word}", _LISTEN, value or ":", part)
        elif option is not None and option.env and flag not in _OWN_FLAGS:
            variables(f"{where}: {flag}", [{"name": option.env[0], "value": value or "true"}], part)
        elif flag not in _MOOT_FLAGS | _OWN_FLAGS:
            part.lose(f"{where}: {word}", say.NO_FLAG)


_LISTEN: Final = "DCGM_EXPORTER_LISTEN"
_FIELDS_OF_IMAGE: Final = frozenset(
    f"/etc/dcgm-exporter/{each}.csv"
    for each in ("default-counters", "dcp-metrics-included", "1.x-compatibility-metrics")
)
"""The lists that the exporter's image has: the agent has their fields by default."""
_OWN_FLAGS: Final = frozenset({"--config", "--config-file", "--node-name", "--kubelet-socket", "--kubeconfig"})
"""Flags that name something inside of a container, or that the chart sets."""
_MOOT_FLAGS: Final = frozenset(
    {"--kubernetes", "-k", "--kubernetes-gpu-id-type", "--kubernetes-virtual-gpus", "--devices"}
)


def _containers(document: Document, part: Part) -> None:
    """Variables and arguments of a DaemonSet's containers. An argument wins over its variable; what another DaemonSet
    has set differently before is lost.
    """
    spec = document.data["spec"]["template"]["spec"]
    moot = _BY_MANAGER if config_managers(document) else ()
    for container in spec.get("containers") or ():
        if is_config_manager(container):
            continue
        where = f"DaemonSet {document.data['metadata']['name']}: {container.get('name')}"
        own = Part()
        arguments(f"{where}: args", container.get("args"), own)
        variables(f"{where}: env", [one for one in _listed(container.get("env")) if one.get("name") not in moot], own)
        part.loses(own.lost)
        part.loses(differing(part.values, own.values, where))
        part.values = merged([part.values, own.values])


def differing(there: Json, more: Json, where: str) -> Iterator[Told]:
    """Values of ``more`` that are lost, as others are there already."""
    known = dict(_settings(there))
    for path, value in _settings(more):
        if known.get(path) is not None and known[path] != value and path != "tolerations":
            yield Told(f"{where}: {path}={_text(value)}", say.other_set(_text(known[path])))


_BY_MANAGER: Final = ("CONFIG_FILE",)
"""Variables that say where the config manager puts the file that it chose."""


def _settings(values: Json, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value by its dotted path; a variable by its name."""
    for key, value in values.items():
        if key == "env":
            yield from ((each["name"], each["value"]) for each in value)
        elif isinstance(value, dict):
            yield from _settings(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def node_labels(inputs: Inputs) -> Part:
    """Labels by which people choose configurations for single nodes: which go on to mean what they meant."""
    part = Part()
    files = {each.name for each in inputs.plugin_files} | {
        re.sub(r"\.ya?ml$", "", each.name) for each in inputs.plugin_files
    }
    parted = {name for each in inputs.parted_files for name in parse_parted(each.text, "-").configurations}
    counted = Counter[tuple[str, str]]()
    for node in inputs.nodes:
        labels = node.data["metadata"].get("labels") or {}
        for key in (_PLUGIN_LABEL, _MIG_LABEL, _VIRTUAL):
            if isinstance(labels, dict) and labels.get(key):
                counted[key, str(labels[key])] += 1
    for (key, value), count in sorted(counted.items()):
        what = f"label {key}={value} ({say.nodes(count)})"
        if key == _VIRTUAL:
            part.keep(what, say.VIRTUAL if value != "container" else say.LABEL_WORKS)
        elif key == _PLUGIN_LABEL and files and value not in files:
            part.lose(what, say.no_file(value))
        elif key == _MIG_LABEL and value not in parted and not _GENERATED.fullmatch(value):
            part.lose(what, say.no_mig_config(value))
        else:
            part.keep(what, say.LABEL_WORKS)
    return part


def beside(inputs: Inputs) -> Part:
    """Drivers that the operator installs by objects of their own, and files of the MIG manager that nothing reads."""
    part = Part()
    part.keeps(Told(f"NVIDIADriver {each.data['metadata'].get('name')}", say.DRIVER) for each in inputs.drivers)
    part.loses(Told(each.whose, say.MIG_EXTRAS) for each in inputs.mig_extras)
    return part
