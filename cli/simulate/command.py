"""``tessera simulate``: the engine on files alone, in virtual time."""

import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import click

from cli.manifests import warn
from cli.printing.output import FOR_PEOPLE, printed, table_option
from cli.simulate.reading import inputs
from cli.simulate.tables import show
from cli.words import given as say
from controller.insight.simulation.documents import Document, warned
from controller.insight.simulation.inputs.nodewords import misplaced
from controller.insight.simulation.inputs.references import unserved
from controller.insight.simulation.manifests import Scenario, is_job
from controller.insight.simulation.run import Progress, simulate
from controller.insight.simulation.start import LAST_YEAR
from controller.insight.simulation.timeline import SimulationResult
from controller.scheduler.decisions.reasons import PendingReason
from inventory.words.catalog import plural
from yamlfile.parsers import Unfit, go_duration

EXIT_PENDING = 3
_JOBS = ("job has", "jobs have")
_QUIET_S = 2.0
_EVERY_S = 0.5
_FIRST_YEAR = 1971


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


class Moment(click.ParamType[float]):
    """A time in RFC 3339, with its zone, in whole seconds."""

    name = "time"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(say.bad_moment(value), param, ctx)
        if moment.tzinfo is None or moment.microsecond or "T" not in value.upper():
            self.fail(say.bad_moment(value), param, ctx)
        if not _FIRST_YEAR <= moment.year <= LAST_YEAR:
            self.fail(say.bad_year(value, _FIRST_YEAR, LAST_YEAR), param, ctx)
        return moment.timestamp()


@click.command("simulate", short_help="Which workload would run when, from files alone.")
@click.argument("manifests", nargs=-1, required=True, type=click.Path(path_type=Path, allow_dash=True))
@click.option("--fleet", type=click.Path(path_type=Path), envvar="TESSERA_FLEET", help="The simulated fleet's file.")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    envvar="TESSERA_CONFIG",
    help="The controller's configuration file; without it Kueue's defaults and Tessera's policy.",
)
@click.option("--start", type=Moment(), metavar="TIME", help="The time at which the simulation starts, for its output.")
@click.option("--until", type=Seconds(), metavar="DURATION", help="Cut off after so much virtual time.")
@click.option("--fail-pending", is_flag=True, help=f"Exit with {EXIT_PENDING} if a workload waits at the end.")
@click.option("--allow-unknown-fields", is_flag=True, help="Fields that no API server knows are a note and no error.")
@table_option
def simulate_command(
    manifests: tuple[Path, ...],
    fleet: Path | None,
    config: Path | None,
    start: float | None,
    until: float | None,
    fail_pending: bool,
    allow_unknown_fields: bool,
    output: str,
) -> None:
    """Which workload runs when? Queues, classes and jobs from files, GPUs from a fleet file, no cluster.

    MANIFESTS are files, folders of them, or - for standard input. Nodes come from --fleet or as Node manifests. On a
    job, tessera.dev/arrival: 10s and tessera.dev/runtime: 30s say when it comes and how long it runs; without a runtime
    it runs for ever. Node pools of the fleet file come and go as jobs need them.

    Exit codes: 0 done, 2 wrong input, 3 a workload is pending at the end (--fail-pending).

    \b
    Examples:
      tessera simulate --fleet fleet.yaml queues.yaml jobs.yaml
      tessera simulate --fleet fleet.yaml --config controller.yaml manifests/
      tessera simulate --fleet pools.yaml --start 2026-01-05T18:00:00Z queues.yaml jobs.yaml
      tessera simulate --fleet fleet.yaml --until 24h -o json . | jq .final
      kubectl get clusterqueues,localqueues,resourceflavors -A -o yaml | tessera simulate --fleet fleet.yaml - job.yaml
    """
    read = inputs(manifests, fleet, config, allow_unknown=allow_unknown_fields, start_s=start)
    scenario = read.scenario
    progress = patience(time.monotonic, _asked(scenario))
    result = simulate(scenario, read.settings.engine, until_s=until, progress=progress)
    unfit = unserved(_unfit(read.documents, result), read.known, scenario.objects)
    warn([*unfit, *misplaced(filter(is_job, read.documents), scenario.objects), *_too_large(read.documents, result)])
    if output not in FOR_PEOPLE:
        printed(result, output)
    else:
        show(result, wide=output == "wide")
    if fail_pending and result.final.pending:
        sys.exit(EXIT_PENDING)


def _too_large(documents: list[Document], result: SimulationResult) -> Iterator[str]:
    """A warning for each job that quota admits and no node is large enough for."""
    for each in filter(is_job, documents):
        for key, sentence in result.too_large.items():
            if _makes(each, key):
                yield warned(f"{each.place()}: {each.subject}{say.runs_on_no_node(sentence)}")
                break


def _makes(document: Document, workload: str) -> bool:
    return workload == document.key or workload.startswith(f"{document.key}-")


def _unfit(documents: list[Document], result: SimulationResult) -> list[Document]:
    """The jobs that no flavor fits at the end."""
    keys = {each.workload for each in result.final.pending if each.reason == PendingReason.NO_MATCHING_FLAVOR.value}
    return [each for each in documents if any(_makes(each, key) for key in keys)]


def _asked(given: Scenario) -> tuple[str, str]:
    """What a scenario has, with its verb, one and several."""
    if not given.requests:
        return _JOBS
    return ("job or request has", "jobs and requests have") if given.submissions else ("request has", "requests have")


def patience(monotonic: Callable[[], float], what: tuple[str, str] = _JOBS) -> Progress:
    """A line on the terminal that is written over, once the simulation takes longer than a person waits without
    wondering. ``what`` ends, with its verb, one and several.
    """
    started_s = shown_s = monotonic()

    def progress(t: float, done: int, everybody: int) -> None:
        nonlocal shown_s
        now_s = monotonic()
        if now_s - started_s > _QUIET_S and now_s - shown_s > _EVERY_S:
            shown_s = now_s
            end = "\r" if sys.stderr.isatty() else "\n"
            sys.stderr.write(f"at {t:g} s: {done} of {plural(everybody, *what)} ended{end}")
            sys.stderr.flush()

    return progress
