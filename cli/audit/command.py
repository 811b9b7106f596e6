"""``tessera audit``: records what a cluster does, or reads such a record, and judges it by rules that no part of
Tessera shares.
"""

import asyncio
import random
import shutil
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

import click

from cli.access.cluster import Where, api_options, named_config, told
from cli.access.kubeapi import opened
from cli.access.local import reason
from cli.audit.files import UnjudgedError, UnreadableError, judged, written
from cli.audit.promises import promises
from cli.audit.recorder import Recorder
from cli.audit.watching_shell import First, first, flushed, record
from cli.options import Duration
from cli.printing.console import Json, aside, show, titled
from cli.printing.output import one_line, output_option, printed
from cli.words import given as say
from cli.words import records
from controller.cluster.config.load import load
from controller.cluster.watching.kinds import NAMESPACES
from history.judge import Verdict
from history.settings import Settings
from inventory.words.catalog import plural
from kube.client import Client
from kube.clock import Backoff, Clock, SystemClock
from kube.errors import ForbiddenError, KubeError
from yamlfile import ConfigError

_FOUND = 1
_DEFAULT_S = 600.0

clock: Callable[[], Clock] = SystemClock


class UnrecordedError(click.ClickException):
    """The record cannot be made or read."""

    exit_code = 2


@click.command(short_help="Whether what the cluster did keeps the rules, recorded and judged.")
@click.argument("file", required=False, type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--for", "for_s", type=Duration(), help="So long it watches; without it 10m. Ctrl-C or SIGTERM ends it sooner."
)
@click.option(
    "--record", "kept", type=click.Path(path_type=Path, dir_okay=False), help="Keep the record; .gz packs it."
)
@api_options
@output_option
def audit(where: Where, file: Path | None, for_s: float | None, kept: Path | None, output: str) -> None:
    """Watch the cluster for a while and say what broke the rules: quota, order, gangs, pods without admission, devices.

    Nothing is asked of the controller and nothing is believed that it wrote where it can be counted from pods. With
    FILE a record is judged that was made before; - is the standard input. The exit code is 0 without findings, 1 with
    some, 2 where the record cannot be made or read.

    \b
    Examples:
      tessera audit --for 1h
      tessera audit --for 10m --record history.jsonl.gz
      tessera audit history.jsonl.gz -o json
    """
    if file is not None and (for_s is not None or kept is not None):
        raise click.UsageError(records.file_and_live())
    if for_s == 0:
        raise click.UsageError(records.no_time())
    try:
        verdict = judged(file) if file is not None else _live(where, for_s or _DEFAULT_S, kept)
    except UnreadableError as wrong:
        raise UnrecordedError(str(wrong)) from None
    _show(verdict, output)
    click.get_current_context().exit(_FOUND if verdict.findings else 0)


def _live(where: Where, for_s: float, kept: Path | None) -> Verdict:
    """Record the cluster and judge the record, which stays where it is if the judge fails at it. Raises
    UnreadableError.
    """
    if kept is not None:
        _record(where, for_s, kept)
        return judged(kept)
    folder = Path(tempfile.mkdtemp(prefix="tessera-audit-"))
    is_needed = False
    try:
        _record(where, for_s, folder / "history.jsonl.gz")
        return judged(folder / "history.jsonl.gz")
    except UnjudgedError:
        is_needed = True  # to find out why: what the cluster did does not come again
        raise
    finally:
        if not is_needed:
            shutil.rmtree(folder, ignore_errors=True)


def _record(where: Where, for_s: float, path: Path) -> None:
    async def work() -> None:
        time, end = clock(), asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM) if _is_main() else ():
            asyncio.get_running_loop().add_signal_handler(number, end.set)
        async with opened(where) as client:
            initial = await first(client)
            settings, unknown = await _promised(client, where)
            initial.unseen += unknown
            with written(path) as file:
                aside(f"{plural(len(initial.listed), 'kind')} are watched for {for_s:g} s; Ctrl-C ends it sooner")
                recorder = Recorder(file.write, time.monotonic())
                try:
                    async with flushed(file):
                        await record(client, initial, recorder, settings, _backoffs(initial), time, end, for_s)
                except KubeError:
                    path.unlink(missing_ok=True)  # it would be in the way of the next try, and has nothing
                    raise

    try:
        asyncio.run(work())
    except KubeError as failed:
        raise UnrecordedError(told(failed)) from None
    except OSError as failed:
        raise UnrecordedError(say.not_written(path, reason(failed))) from None


def _is_main() -> bool:
    import threading

    return threading.current_thread() is threading.main_thread()


async def _promised(client: Client, where: Where) -> tuple[Settings, list[str]]:
    """The settings that the controller's configuration promises, and a line for each part that may not be read.

    Raises KubeError where namespaces cannot be listed for another reason than a right.
    """
    if where.config is not None:
        try:
            load(where.config)
        except ConfigError as wrong:
            raise UnrecordedError(str(wrong)) from None
    text = where.config.read_text() if where.config is not None else await named_config(client, where)
    own, unseen, labels = where.controller.partition("/")[0], list[str](), list[dict[str, str]]()
    try:
        labels = [each["metadata"].get("labels") or {} for each in (await client.list_all(NAMESPACES, Json)).items]
    except ForbiddenError:
        unseen.append(f"namespaces: may not be listed, all but kube-system and {own} are taken for queued")
    settings, unknown = promises(text, own, labels)
    return settings, [*unseen, *unknown]


def _backoffs(found: First) -> list[Backoff]:
    return [Backoff(random=random.random, initial_s=0.2, maximum_s=10.0) for _ in found.listed]


def _show(verdict: Verdict, output: str) -> None:
    if output != "text":
        printed(verdict, output)
        return
    if verdict.findings:
        table = titled("Findings", "at", "rule", "objects", "what")
        for each in verdict.findings:
            table.add_row(f"{each.t:.1f}s", each.rule, ", ".join(each.objects), each.message)
        show(table)
    click.echo(f"{plural(len(verdict.findings), 'finding')} in {plural(verdict.facts, 'fact')}")
    for line in verdict.unseen:
        click.echo(f"not seen: {one_line(line)}")
