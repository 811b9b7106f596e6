"""The inputs of a simulation: manifests, a fleet and a configuration, with all their problems at once."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from cli.manifests import Manifests, WrongInputError, in_order, note, read_manifests, warn
from cli.words import given as say
from controller.cluster.config.load import default, load
from controller.cluster.config.settings import ControllerConfig
from controller.insight.simulation.bargained.requests import is_request, unknown_requests
from controller.insight.simulation.documents import Document, InputError
from controller.insight.simulation.inputs.known import Known, known
from controller.insight.simulation.inputs.nodewords import without_nodes
from controller.insight.simulation.inputs.references import loose_ends, missing_classes
from controller.insight.simulation.manifests import Scenario, is_job, scenario, wrong_kinds
from controller.insight.simulation.pools.specs import FIXED, PoolFleet
from controller.insight.simulation.problems import found_first
from controller.objects.core import Namespace
from controller.objects.meta import KubernetesObject
from yamlfile import ConfigError


class Inputs(NamedTuple):
    """The inputs. ``documents`` are the manifests', ``known`` the names in them, ``scenario`` the state with which a
    simulation begins.
    """

    settings: ControllerConfig
    documents: list[Document]
    known: Known
    scenario: Scenario


class _Nodes(NamedTuple):
    objects: list[KubernetesObject]
    fleet: PoolFleet
    has_events: bool


def inputs(
    manifests: Iterable[Path],
    fleet: Path | None = None,
    config: Path | None = None,
    *,
    allow_unknown: bool = False,
    events_count: bool = False,
    start_s: float | None = None,
) -> Inputs:
    """Read the inputs. Warnings and notes are told on standard error. ``events_count``: events of the fleet's hardware
    are played. ``start_s``: seconds since 1970 of the start, if it is told.

    Raises WrongInputError with all problems, in the order of the files.
    """
    wrong: list[str] = []
    settings, nodes = _settings(config, wrong), _nodes(fleet, wrong)
    read = read_manifests(manifests, allow_unknown=allow_unknown)
    names = known(read.documents)
    warnings = [*read.warnings, *(loose_ends(read.documents, names) if read.is_whole else ())]
    warnings += unknown_requests(read.documents) if read.is_whole else ()
    wrong += read.errors
    if read.is_whole:
        wrong += missing_classes(read.documents, names)
    # The outcome of a job's rules may depend on the configuration and on the nodes.
    made = _scenario(read, settings, nodes, start_s, wrong) if settings is not None and nodes is not None else None
    if wrong or made is None or settings is None or nodes is None:
        warn(warnings)
        raise WrongInputError("\n".join(map(found_first, in_order(wrong))))
    notes = [*map(str, settings.without_effect), *read.notes, *made.warnings]
    if nodes.has_events and not events_count:
        notes.append(f"{fleet}: events: what happens to hardware is no part of this simulation")
    if nodes.fleet and events_count:
        notes.append(f"{fleet}: nodePools, interrupt: nodes come and go in tessera simulate alone, passed over")
    if made.requests and events_count:
        notes.append("CapacityRequests are answered in tessera simulate alone, passed over")
    note(notes)
    warn([*made.unqueued, *warnings, *without_nodes(read.documents, made.objects)])
    if made.unqueued and not made.submissions and not made.requests:
        raise WrongInputError(say.no_job_is_queued())
    if read.documents and not made.submissions and not made.requests and not _decides(made.objects, nodes.objects):
        raise WrongInputError(say.nothing_decides(read.documents[0].file))
    return Inputs(settings, read.documents, names, made)


def _decides(objects: Iterable[KubernetesObject], nodes: Iterable[KubernetesObject]) -> bool:
    """Whether the manifests have an object that something goes by. ``nodes``: those that are not theirs."""
    others = {id(each) for each in nodes}
    return any(id(each) not in others and not isinstance(each, Namespace) for each in objects)


def _settings(config: Path | None, wrong: list[str]) -> ControllerConfig | None:
    try:
        return default() if config is None else load(config)
    except ConfigError as error:
        wrong += str(error).splitlines()
        return None


def _nodes(fleet: Path | None, wrong: list[str]) -> _Nodes | None:
    if fleet is None:
        return _Nodes([], FIXED, has_events=False)
    from cli.fleetnodes import load_nodes
    from simulator.reading import InputError as FleetError

    try:
        loaded = load_nodes(fleet)
    except FleetError as error:
        wrong += str(error).splitlines()
        return None
    return _Nodes([*loaded.nodes], loaded.fleet, loaded.has_events)


def _scenario(
    read: Manifests, settings: ControllerConfig, nodes: _Nodes, start_s: float | None, wrong: list[str]
) -> Scenario | None:
    """The scenario; None where the input has problems.

    Refused documents take no part in the checks of a job's rules. Where a file cannot be read its objects are unknown,
    so references of others are not checked then.
    """
    refused = {id(each) for each in read.refused}
    if not read.is_whole or not all(is_job(each) or is_request(each) for each in read.refused):
        with suppress(InputError):  # a JobKind that makes no kind raises it, and is told once the rest is right
            wrong += wrong_kinds((each for each in read.documents if id(each) not in refused), settings)
        return None
    places = {line.partition(": ")[0] for line in wrong}
    documents = (each for each in read.documents if id(each) not in refused)
    try:
        return scenario(documents, settings, nodes.objects, nodes.fleet, start_s)
    except InputError as error:
        wrong += (line for line in error.lines if line.partition(": ")[0] not in places)
        return None
