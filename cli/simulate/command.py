"""``tessera simulate``: the engine on files alone, in virtual time."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import click

from cli.console import aside
from cli.manifests import Manifests, WrongInputError, in_order, read_manifests, warn
from cli.output import FOR_PEOPLE, printed, table_option
from cli.simulate.tables import show
from cli.words import given as say
from controller.config.load import default, load
from controller.config.settings import ControllerConfig
from controller.engine.conditions.reasons import PendingReason
from controller.objects.meta import KubernetesObject
from controller.simulation.documents import Document, InputError
from controller.simulation.inputs.nodewords import misplaced, without_nodes
from controller.simulation.inputs.references import Names, loose_ends, missing_classes, unserved
from controller.simulation.manifests import Scenario, is_job, scenario
from controller.simulation.problems import found_first
from controller.simulation.run import Progress, simulate
from controller.simulation.timeline import SimulationResult
from inventory.words.plural import plural
from yamlfile import ConfigError
from yamlfile.parsers import Unfit, go_duration

EXIT_PENDING = 3
_QUIET_S = 2.0
_EVERY_S = 0.5


class Seconds(click.ParamType[float]):
    """A duration as Go writes it, or a plain number of seconds."""

    name = "duration"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            return float(value) if value.replace(".", "", 1).isdigit() else go_duration(value)
        except (Unfit, ValueError):
            self.fail(say.bad_duration(value), param, ctx)


@click.command("simulate", short_help="Which workload would run when, from files alone.")
@click.argument("manifests", nargs=-1, required=True, type=click.Path(path_type=Path, allow_dash=True))
@click.option("--fleet", type=click.Path(path_type=Path), envvar="TESSERA_FLEET", help="The simulated fleet's file.")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    envvar="TESSERA_CONFIG",
    help="The controller's configuration file; without it Kueue's defaults and Tessera's policy.",
)
@click.option("--until", type=Seconds(), metavar="DURATION", help="Cut off after so much virtual time.")
@click.option("--fail-pending", is_flag=True, help=f"Exit with {EXIT_PENDING} if a workload waits at the end.")
@click.option("--allow-unknown-fields", is_flag=True, help="Fields that no API server knows are a note and no error.")
@table_option
def simulate_command(
    manifests: tuple[Path, ...],
    fleet: Path | None,
    config: Path | None,
    until: float | None,
    fail_pending: bool,
    allow_unknown_fields: bool,
    output: str,
) -> None:
    """Which workload runs when? Queues, classes and jobs from files, GPUs from a fleet file, no cluster.

    MANIFESTS are files, folders of them, or - for standard input. Nodes come from --fleet or as Node manifests. On a
    job, tessera.dev/arrival: 10s and tessera.dev/runtime: 30s say when it comes and how long it runs; without a runtime
    it runs for ever.

    Exit codes: 0 done, 2 wrong input, 3 a workload is pending at the end (--fail-pending).

    \b
    Examples:
      tessera simulate --fleet fleet.yaml queues.yaml jobs.yaml
      tessera simulate --fleet fleet.yaml --config controller.yaml manifests/
      tessera simulate --fleet fleet.yaml --until 24h -o json . | jq .final
      kubectl get clusterqueues,localqueues,resourceflavors -A -o yaml | tessera simulate --fleet fleet.yaml - job.yaml
    """
    try:
        settings = default() if config is None else load(config)
        nodes, events = _nodes(fleet)
        read = read_manifests(manifests, allow_unknown=allow_unknown_fields)
        known = Names(read.documents)
        warnings = [*read.warnings, *(loose_ends(read.documents, known) if read.is_whole else ())]
        try:
            given = _scenario(read, known, settings, nodes)
        except InputError:
            warn(warnings)
            raise
        notes = [*map(str, settings.without_effect), *read.notes, *given.warnings]
        if events:
            notes.append(f"{fleet}: events: what happens to hardware is no part of this simulation")
        for note in notes:
            aside(note)
        warn([*given.unqueued, *warnings, *without_nodes(read.documents, given.objects)])
        if given.unqueued and not given.submissions:
            raise WrongInputError(say.no_job_is_queued())
        result = simulate(given, settings.engine, until_s=until, progress=patience(time.monotonic))
    except (ConfigError, InputError) as wrong:
        raise WrongInputError("\n".join(map(found_first, str(wrong).splitlines()))) from None
    unfit = unserved(_unfit(read.documents, result), known, given.objects)
    warn([*unfit, *misplaced(filter(is_job, read.documents), given.objects)])
    if output not in FOR_PEOPLE:
        printed(result, output)
    else:
        show(result, wide=output == "wide")
    if fail_pending and result.final.pending:
        sys.exit(EXIT_PENDING)


def _scenario(read: Manifests, known: Names, settings: ControllerConfig, nodes: list[KubernetesObject]) -> Scenario:
    """Raises InputError with all that is wrong, in the order of the files.

    What is refused as it stands has no part in the checks of a job's rules, and of a file that cannot be read nobody
    knows what it would have brought: what others name is not looked for then.
    """
    errors = list(read.errors)
    refused = {id(each) for each in read.refused}
    given = None
    if read.is_whole:
        errors += missing_classes(read.documents, known)
    if read.is_whole and all(map(is_job, read.refused)):
        try:
            given = scenario((each for each in read.documents if id(each) not in refused), settings, nodes)
        except InputError as wrong:
            told = {line.partition(": ")[0] for line in errors}
            errors += (line for line in wrong.lines if line.partition(": ")[0] not in told)
    if errors or given is None:
        raise InputError.of(in_order(errors))
    return given


def _unfit(documents: list[Document], result: SimulationResult) -> list[Document]:
    """The jobs that no flavor fits at the end."""
    keys = {each.workload for each in result.final.pending if each.reason == PendingReason.NO_MATCHING_FLAVOR.value}
    return [each for each in documents if any(key == each.key or key.startswith(f"{each.key}-") for key in keys)]


def _nodes(fleet: Path | None) -> tuple[list[KubernetesObject], bool]:
    if fleet is None:
        return [], False
    from cli.fleetnodes import load_nodes
    from simulator.reading import InputError as FleetError

    try:
        nodes, events = load_nodes(fleet)
    except FleetError as wrong:
        raise InputError(str(wrong)) from None
    return [*nodes], events


def patience(monotonic: Callable[[], float]) -> Progress:
    """A line on the terminal that is written over, once it takes longer than a person waits without wondering."""
    started_s = shown_s = monotonic()

    def progress(t: float, done: int, everybody: int) -> None:
        nonlocal shown_s
        now_s = monotonic()
        if now_s - started_s > _QUIET_S and now_s - shown_s > _EVERY_S:
            shown_s = now_s
            end = "\r" if sys.stderr.isatty() else "\n"
            sys.stderr.write(f"at {t:g} s: {done} of {plural(everybody, 'job has', 'jobs have')} ended{end}")
            sys.stderr.flush()

    return progress
