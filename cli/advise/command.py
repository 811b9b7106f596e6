"""``tessera advise``: smaller requests that would be enough, from Prometheus' figures."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.text import Text

from cli.access.cluster import Where, api_options, run
from cli.access.local import Number, Whole
from cli.advise.advice import Advice, AdviceKind, AdviceOptions, AdviceReport, Prefer, report
from cli.advise.queries import TIMEOUT_S, ask, check, known_products, queries, requests
from cli.naming.suggestions import names
from cli.options import Duration
from cli.printing.console import Json, patience, show, titled
from cli.printing.output import FOR_PEOPLE, printed, table_option
from cli.printing.table import Table, less, prose
from cli.words import given as say
from inventory.words.catalog import plural
from kube.prometheus import FileError, Prometheus, authorities_in, token_in
from yamlfile.parsers import HTTP_URL, Unfit

T = TypeVar("T")


def _some(_: click.Context, __: click.Parameter, value: float) -> float:
    if value <= 0:
        raise click.BadParameter(say.empty_window())
    return value


def _url(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    try:
        return str(HTTP_URL.convert(value))
    except Unfit:
        raise click.BadParameter(say.bad_value(value, HTTP_URL.expected)) from None


@click.command(short_help="Which containers could ask for less GPU; which moves would let jobs run.")
@click.option("--prometheus", "url", envvar="TESSERA_PROMETHEUS", callback=_url, help="Its URL.")
@click.option("--pack", is_flag=True, help="Which moves of running workloads would let waiting ones run.")
@click.option(
    "--file",
    "-f",
    "files",
    multiple=True,
    type=click.Path(path_type=Path, allow_dash=True),
    help="--pack: the cluster's objects from files, folders, or - for standard input; else from the API server.",
)
@click.option("--token-file", type=click.Path(path_type=Path), help="File with a bearer token for it.")
@click.option("--ca-file", type=click.Path(path_type=Path), help="File with the authorities of its certificate.")
@click.option(
    "--window", type=Duration(), default="7d", callback=_some, show_default=True, help="How far back to look."
)
@click.option("--min-age", type=Duration(), default="1h", show_default=True, help="Younger containers get no advice.")
@click.option("--headroom", type=Number(0, 10), default=0.2, show_default=True, help="Added to the use: 0.2 is 20 %.")
@click.option(
    "--prefer",
    type=click.Choice([choice.value for choice in Prefer]),
    default="mig",
    show_default=True,
    help="Where a MIG instance and a fraction would both do.",
)
@click.option("--granularity", type=Whole(1, 100), default=1, show_default=True, help="Of fractions, in percent.")
@click.option("-n", "--namespace", help="Of this namespace only.", shell_complete=names("namespaces"))
@api_options
@table_option
def advise(
    where: Where,
    url: str | None,
    pack: bool,
    files: tuple[Path, ...],
    namespace: str | None,
    output: str,
    **given: Any,
) -> None:
    """Say which containers could ask for less GPU, and what that would free; or, with --pack, which moves of running
    workloads would let waiting ones run, and what they would cost. Nothing is carried out.

    The use of a container that holds GPUs now is the 95th percentile of what it did in the window, and the most memory
    that it held.

    \b
    Examples:
      tessera advise --prometheus http://localhost:9090               the last week
      tessera advise --prometheus URL --window 1d -n team-a           one team, one day
      tessera advise --prometheus URL --prefer fraction               shares by percent instead of MIG
      tessera advise --prometheus URL -o json | jq .freesGpus         for programs
      tessera advise --pack                                           the cluster of the kubeconfig
      tessera advise --pack -o json | jq .plans[].workload
      tessera advise --pack -f nodes.yaml -f queues/ -f workloads.yaml   from files, without a cluster
    """
    if pack:
        _pack(where, files, namespace, output)
        return
    if files:
        raise click.UsageError(say.file_without_pack())
    if url is None:
        raise click.UsageError(say.nothing_to_advise_by())
    wish = AdviceOptions(given["headroom"], given["min_age"], Prefer(given["prefer"]), given["granularity"])
    token = _read("--token-file", token_in, given["token_file"])
    authorities = _read("--ca-file", authorities_in, given["ca_file"])
    prometheus = Prometheus(url, token, authorities, timeout_s=TIMEOUT_S)
    report = asyncio.run(_look(prometheus, given["window"], namespace, wish))
    if output not in FOR_PEOPLE:
        printed(report, output)
    else:
        _show(report, wide=output == "wide")


def _pack(where: Where, files: tuple[Path, ...], namespace: str | None, output: str) -> None:
    # The engine's modules are not loaded where Prometheus is queried.
    from cli.advise import packing

    def told(body: Json) -> None:
        if output not in FOR_PEOPLE:
            printed(body, output)
        else:
            packing.show_plans(body, wide=output == "wide")

    async def work() -> None:
        told(await packing.of_cluster(where, namespace))

    if files:
        told(packing.of_files(files, where.config, namespace))
    else:
        run(work())


async def _look(prometheus: Prometheus, window_s: float, namespace: str | None, wish: AdviceOptions) -> AdviceReport:
    async with patience(lambda: "waiting for Prometheus"):
        found = await ask(prometheus, queries(window_s, namespace))
    check(prometheus.url, found)
    return report(requests(found), known_products(found), wish, window_s)


def _read(option: str, read: Callable[[Path], T], path: Path | None) -> T | None:
    try:
        return None if path is None else read(path)
    except FileError as failed:
        raise click.ClickException(say.unreadable_option(option, str(failed))) from None


def _show(found: AdviceReport, *, wide: bool) -> None:
    if not found.advice:
        show("no container holds a GPU")
        return
    useful = [advice for advice in found.advice if advice.kind not in (AdviceKind.KEEP, AdviceKind.UNKNOWN)]
    if useful:
        show(_table(useful), "", wide=wide)
    right = sum(advice.kind is AdviceKind.KEEP for advice in found.advice)
    for advice in found.advice:
        if advice.kind is AdviceKind.UNKNOWN:
            show(Text(f"no advice for {advice.namespace}/{advice.pod}: {advice.why}"))
    for name, one_sum in found.namespaces.items():
        if one_sum.frees_gpus > 0:
            show(Text(f"{name}: {one_sum.frees_gpus:.2f} of {one_sum.asked_gpus:.2f} GPUs"))
    total = f"{found.frees_gpus:.2f} of {found.asked_gpus:.2f} GPUs would be free"
    show(Text(f"{total}; {plural(right, 'request is', 'requests are')} as {'it' if right == 1 else 'they'} should be"))


def _table(found: list[Advice]) -> Table:
    columns = ("pod", prose("asked"), less("used (p95)"), less("memory (most)", 2), prose("would do"), "frees")
    table = titled("", *columns)
    for advice in found:
        name = f"{advice.namespace}/{advice.pod}"
        used = (
            "-"
            if advice.activity_p95 is None
            else f"{advice.activity_p95:.2f} GPU"
            if advice.mode != "mig"
            else f"{advice.activity_p95:.0%}"
        )
        memory = "-" if advice.memory_max_mib is None else f"{advice.memory_max_mib / 1024:.1f} GiB"
        table.add_row(name, advice.asked, used, memory, advice.do, f"{advice.frees_gpus:.2f}")
    return table
