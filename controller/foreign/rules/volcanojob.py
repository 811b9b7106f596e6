"""Rules about Volcano's Jobs, ``batch.volcano.sh/v1alpha1``, at creation.

Source: Volcano's webhook of Jobs. Bounds of single numbers and the form of names are in the CRD. The controller checks
what depends on other objects, or on circles: whether the queue exists, is open and a leaf, and whether ``dependsOn``
leads in a circle.
"""

from collections.abc import Callable, Iterator
from typing import Final

from controller.foreign.rules import lifecycle, volcanojobchange
from controller.foreign.rules.ruled import (
    ForeignKind,
    bounded,
    duplicates,
    first_items,
    listed,
    place,
)
from controller.foreign.rules.volcanodefaults import DEFAULTS, PLUGINS
from controller.jobs.framework.kind import Refusal, Review, Rule
from controller.jobs.framework.raw import Json, at, integer, mapping, sequence, shown, text
from controller.jobs.rules import cel
from controller.jobs.rules.fields import invalid
from controller.objects.quantity import QuantityError, parse_quantity

_KNOWN_PLUGIN: Final = f"expected one of {', '.join(PLUGINS)}, found "
_NUMA: Final = ("restricted", "single-numa-node")
_NO_NUMA: Final = (
    "no scheduler places pods on NUMA nodes here: expected none or best-effort, with tessera.dev/required-gpu-link for"
    " GPUs, found "
)
_WHOLE_CPUS: Final = "expected whole CPUs in every container with topologyPolicy"
TIERS: Final = "expected highestTierAllowed or highestTierName, found both"
_CLAIMS: Final = "expected volumeClaim or volumeClaimName, found "
_OWN_NAMES: Final = "expected names of other tasks, found "
_MOST_CHARACTERS: Final = 63
_SHORT: Final = f"expected names of pods of at most {_MOST_CHARACTERS} characters, found "


def _at_creation(found: Callable[[Json], Iterator[Refusal]]) -> Callable[[Review], Iterator[Refusal]]:
    return lambda review: found(review.new) if review.before is None else iter(())


def _rule(name: str, found: Callable[[Json], Iterator[Refusal]], said: str) -> Rule:
    return Rule(refused=_at_creation(found), says={name: cel.when("!variables.updated", said)})


def _of_tasks(sentence: str) -> str:
    """The first sentence about a task; ``sentence`` is about ``variables.tasks[i]``."""
    return cel.first(f"{cel.places('variables.tasks')}.map(i, {sentence})")


_TASK: Final = "variables.tasks[i]"


# -- names


def _unique_names(job: Json) -> Iterator[Refusal]:
    for name in duplicates(text(task, "name") for task in first_items(job, "spec", "tasks")):
        if name:
            yield invalid("spec.tasks", f"expected each name once, found again {shown(name)}")


def _unique_names_says() -> str:
    again = "variables.names.filter(n, n != '' && variables.names.filter(m, m == n).size() > 1)"
    sentence = cel.text(cel.quoted("spec.tasks: expected each name once, found again "), cel.shown(f"{again}[0]"))
    return cel.when(f"size({again}) > 0", sentence)


def _short_names(job: Json) -> Iterator[Refusal]:
    name = text(job, "metadata", "name")
    for index, task in enumerate(first_items(job, "spec", "tasks")):
        last = f"{name}-{text(task, 'name')}-{max(integer(task, 'replicas', default=0) - 1, 0)}"
        if len(last) > _MOST_CHARACTERS:
            yield invalid(f"spec.tasks[{index}].name", f"{_SHORT}{len(last)}")


def _short_names_says() -> str:
    last = f"{_TASK}.?replicas.orValue(0) > 0 ? {_TASK}.replicas - 1 : 0"
    long = f"size(object.metadata.?name.orValue('')) + size(variables.names[i]) + size(string({last})) + 2"
    sentence = cel.text(
        place("spec.tasks", "i", f".name: {_SHORT}"),
        f"string({long})",
    )
    return _of_tasks(cel.when(f"{long} > {_MOST_CHARACTERS}", sentence))


def _dependencies(job: Json) -> Iterator[Refusal]:
    """Refusals of dependencies. The controller finds a circle through several tasks."""
    tasks = first_items(job, "spec", "tasks")
    names = [text(task, "name") for task in tasks]
    for index, task in enumerate(tasks):
        for name in sequence(task, "dependsOn", "name"):
            if name not in names or name == names[index]:
                yield invalid(f"spec.tasks[{index}].dependsOn.name", _OWN_NAMES + shown(name))
                break


def _dependencies_says() -> str:
    wrong = f"{_TASK}.?dependsOn.?name.orValue([]).filter(n, !(n in variables.names) || n == variables.names[i])"
    sentence = cel.text(place("spec.tasks", "i", f".dependsOn.name: {_OWN_NAMES}"), cel.shown(f"{wrong}[0]"))
    return _of_tasks(cel.when(f"size({wrong}) > 0", sentence))


# -- numbers


def _minimums(job: Json) -> Iterator[Refusal]:
    tasks = first_items(job, "spec", "tasks")
    total, least = (
        (sum(integer(task, "replicas", default=0) for task in tasks)),
        integer(job, "spec", "minAvailable", default=0),
    )
    if least > total:
        yield invalid("spec.minAvailable", f"expected at most {total}, the replicas of all tasks, found {least}")
    for index, task in enumerate(tasks):
        replicas, own = integer(task, "replicas", default=0), integer(task, "minAvailable", default=0)
        if own > replicas:
            path = f"spec.tasks[{index}].minAvailable"
            yield invalid(path, f"expected at most {replicas}, the task's replicas, found {own}")


def _minimums_rule() -> Rule:
    """The rule about minimums, which holds at updates as well."""
    least, replicas = "object.?spec.?minAvailable.orValue(0)", f"{_TASK}.?replicas.orValue(0)"
    own = f"{_TASK}.?minAvailable.orValue(0)"
    of_job = cel.text(
        cel.quoted("spec.minAvailable: expected at most "),
        "string(variables.replicas)",
        cel.quoted(", the replicas of all tasks, found "),
        f"string({least})",
    )
    of_task = cel.text(
        place("spec.tasks", "i", ".minAvailable: expected at most "),
        f"string({replicas})",
        cel.quoted(", the task's replicas, found "),
        f"string({own})",
    )
    says = {
        "minAvailable": cel.when(f"{least} > variables.replicas", of_job),
        "taskMinimums": _of_tasks(cel.when(f"{own} > {replicas}", of_task)),
    }
    return Rule(refused=lambda review: _minimums(review.new), says=says)


def _partitions(job: Json) -> Iterator[Refusal]:
    for index, task in enumerate(first_items(job, "spec", "tasks")):
        if not mapping(task, "partitionPolicy"):
            continue
        total, size = (integer(task, "partitionPolicy", key, default=0) for key in ("totalPartitions", "partitionSize"))
        replicas = integer(task, "replicas", default=0)
        if total * size != replicas:
            sentence = f"expected totalPartitions times partitionSize to be the task's replicas ({replicas}), found "
            yield invalid(f"spec.tasks[{index}].partitionPolicy", f"{sentence}{total * size}")


def _partitions_says() -> str:
    policy, replicas = f"{_TASK}.?partitionPolicy", f"{_TASK}.?replicas.orValue(0)"
    product = f"{policy}.?totalPartitions.orValue(0) * {policy}.?partitionSize.orValue(0)"
    sentence = cel.text(
        place(
            "spec.tasks",
            "i",
            ".partitionPolicy: expected totalPartitions times partitionSize to be the task's replicas (",
        ),
        f"string({replicas})",
        "'), found '",
        f"string({product})",
    )
    return _of_tasks(cel.when(f"size({policy}.orValue({{}})) > 0 && {product} != {replicas}", sentence))


# -- plugins, volumes, topology


def _plugins(job: Json) -> Iterator[Refusal]:
    unknown = sorted(name for name in mapping(job, "spec", "plugins") if name not in PLUGINS)
    if unknown:
        yield invalid("spec.plugins", _KNOWN_PLUGIN + shown(unknown[0]))


def _plugins_says() -> str:
    unknown = f"object.?spec.?plugins.orValue({{}}).map(n, n).filter(n, !(n in {listed(PLUGINS)}))"
    smallest = f"{unknown}.filter(n, {unknown}.all(m, n <= m))[0]"
    return cel.when(f"size({unknown}) > 0", cel.text(cel.quoted(f"spec.plugins: {_KNOWN_PLUGIN}"), cel.shown(smallest)))


def _mpi_master(job: Json) -> Iterator[Refusal]:
    if "mpi" not in mapping(job, "spec", "plugins"):
        return
    arguments = [str(each) for each in sequence(job, "spec", "plugins", "mpi")]
    joined = [each.partition("=")[2] for each in arguments if each.startswith(("--master=", "-master="))]
    apart = [arguments[index + 1] for index, each in enumerate(arguments[:-1]) if each in ("--master", "-master")]
    master = (joined + apart + ["master"])[0]
    if master not in [text(task, "name") for task in first_items(job, "spec", "tasks")]:
        yield invalid("spec.plugins.mpi", f"expected a task called {shown(master)}, the master, found none")


def _mpi_master_says() -> str:
    arguments = "object.?spec.?plugins[?'mpi'].orValue([])"
    joined = f"{arguments}.filter(a, a.matches('^--?master=')).map(a, a.substring(a.indexOf('=') + 1))"
    following = f"i + 1 < size({arguments}) && {arguments}[i] in ['--master', '-master']"
    apart = f"{cel.places(arguments)}.filter(i, {following}).map(i, {arguments}[i + 1])"
    master = f"({joined} + {apart} + ['master'])[0]"
    sentence = cel.text(
        cel.quoted("spec.plugins.mpi: expected a task called "), cel.shown(master), "', the master, found none'"
    )
    return cel.when(
        f"object.?spec.?plugins[?'mpi'].hasValue() && !({master} in variables.names)",
        sentence,
    )


def _volumes(job: Json) -> Iterator[Refusal]:
    volumes = first_items(job, "spec", "volumes")
    for path in duplicates(text(volume, "mountPath") for volume in volumes):
        yield invalid("spec.volumes", f"expected each mountPath once, found again {shown(path)}")
    for index, volume in enumerate(volumes):
        named, claimed = bool(text(volume, "volumeClaimName")), at(volume, "volumeClaim") is not None
        if named == claimed:
            yield invalid(f"spec.volumes[{index}]", _CLAIMS + ("both" if named else "neither"))


def _volumes_says() -> str:
    paths = "variables.volumes.map(v, v.?mountPath.orValue(''))"
    again = f"{paths}.filter(p, {paths}.filter(q, q == p).size() > 1)"
    twice = cel.text(cel.quoted("spec.volumes: expected each mountPath once, found again "), cel.shown(f"{again}[0]"))
    named = "variables.volumes[i].?volumeClaimName.orValue('') != ''"
    claimed = "variables.volumes[i].?volumeClaim.hasValue()"
    wrong = cel.text(place("spec.volumes", "i", f": {_CLAIMS}"), cel.when(named, "'both'", "'neither'"))
    claims = cel.first(f"{cel.places('variables.volumes')}.map(i, {cel.when(f'({named}) == ({claimed})', wrong)})")
    return cel.any_of(cel.when(f"size({again}) > 0", twice), claims)


def _tiers(job: Json) -> Iterator[Refusal]:
    where = {"spec.networkTopology": mapping(job, "spec", "networkTopology")}
    for index, task in enumerate(first_items(job, "spec", "tasks")):
        path = f"spec.tasks[{index}].partitionPolicy.networkTopology"
        where[path] = mapping(task, "partitionPolicy", "networkTopology")
    for path, topology in where.items():
        if at(topology, "highestTierAllowed") is not None and text(topology, "highestTierName"):
            yield invalid(path, TIERS)


def both_tiers(topology: str) -> str:
    """Whether a network topology, an optional, has both forms of a tier, in CEL."""
    return f"{topology}.?highestTierAllowed.hasValue() && {topology}.?highestTierName.orValue('') != ''"


def _tiers_says() -> str:
    of_task = place("spec.tasks", "i", f".partitionPolicy.networkTopology: {TIERS}")
    return cel.any_of(
        cel.when(both_tiers("object.?spec.?networkTopology"), cel.says("spec.networkTopology", TIERS)),
        _of_tasks(cel.when(both_tiers(f"{_TASK}.?partitionPolicy.?networkTopology"), of_task)),
    )


def _numa(job: Json) -> Iterator[Refusal]:
    for index, task in enumerate(first_items(job, "spec", "tasks")):
        found, path = text(task, "topologyPolicy"), f"spec.tasks[{index}].topologyPolicy"
        if found in _NUMA:
            yield invalid(path, _NO_NUMA + shown(found))
        elif found not in ("", "none") and not all(map(_has_whole_cpus, _containers(task))):
            yield invalid(path, _WHOLE_CPUS)


def _numa_says() -> str:
    policy = f"{_TASK}.?topologyPolicy.orValue('')"
    refused = cel.text(place("spec.tasks", "i", f".topologyPolicy: {_NO_NUMA}"), cel.shown(policy))
    spec = f"{_TASK}.?template.?spec"
    containers = f"({spec}.?containers.orValue([]) + {spec}.?initContainers.orValue([]))"
    cpu = "string(c.?resources.?requests[?'cpu'].orValue(c.?resources.?limits[?'cpu'].orValue('0')))"
    whole = f"{containers}.all(c, quantity({cpu}).isInteger() && quantity({cpu}).asInteger() > 0)"
    parts = cel.when(
        f"!({policy} in ['', 'none']) && !{whole}", place("spec.tasks", "i", f".topologyPolicy: {_WHOLE_CPUS}")
    )
    return _of_tasks(cel.when(f"{policy} in {listed(_NUMA)}", refused, parts))


def _containers(task: Json) -> list[Json]:
    return [each for key in ("containers", "initContainers") for each in sequence(task, "template", "spec", key)]


def _has_whole_cpus(container: Json) -> bool:
    limits, requests = (mapping(container, "resources", key) for key in ("limits", "requests"))
    try:
        cpus = parse_quantity(str(requests.get("cpu", limits.get("cpu", "0")))).fraction
    except QuantityError:
        return False
    return cpus.denominator == 1 and cpus > 0


_TASKS: Final = bounded("object.?spec.?tasks.orValue([])")

VOLCANO_JOB: Final = ForeignKind(
    system="volcano",
    group="batch.volcano.sh",
    version="v1alpha1",
    kind="Job",
    plural="jobs",
    own_variables=(
        ("tasks", _TASKS),
        ("names", "variables.tasks.map(t, t.?name.orValue(''))"),
        ("replicas", "variables.tasks.map(t, t.?replicas.orValue(0)).sum()"),
        ("volumes", bounded("object.?spec.?volumes.orValue([])")),
        *lifecycle.VARIABLES,
    ),
    rules=(
        _rule("taskNames", _unique_names, _unique_names_says()),
        _rule("podNames", _short_names, _short_names_says()),
        _minimums_rule(),
        _rule("partitions", _partitions, _partitions_says()),
        _rule("dependencies", _dependencies, _dependencies_says()),
        _rule("plugins", _plugins, _plugins_says()),
        _rule("mpiMaster", _mpi_master, _mpi_master_says()),
        _rule("volumes", _volumes, _volumes_says()),
        _rule("tiers", _tiers, _tiers_says()),
        _rule("numa", _numa, _numa_says()),
        *lifecycle.rules(),
        volcanojobchange.RULE,
    ),
    defaults=DEFAULTS,
)
