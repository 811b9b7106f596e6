"""``tessera support-bundle``: collects the data of a bug report, without secrets and other people's names, in
one file.
"""

import io
import os
import tarfile
import time
from pathlib import Path

import click

from cli.access.cluster import Where, cluster_options, run
from cli.access.kubeapi import opened
from cli.access.local import Whole, reason
from cli.naming.suggestions import names
from cli.printing.console import aside
from cli.printing.output import output_option, printed
from cli.supportbundle.collect import Bundle, Collector
from cli.words import given as say
from inventory.words.catalog import plural

FOLDER = "tessera-support"
_OWN_ALONE = 0o600


@click.command("support-bundle", short_help="Collect what a bug report needs into a file.")
@click.option("-f", "--file", type=click.Path(path_type=Path, dir_okay=False), help="Without it one with the date.")
@click.option(
    "--keep",
    multiple=True,
    metavar="NAMESPACE",
    help="Names of it stay; may be repeated.",
    shell_complete=names("namespaces"),
)
@click.option("--tail", type=Whole(1, 100_000), default=1000, show_default=True, help="Lines of each log.")
@cluster_options
@output_option
def support_bundle(where: Where, file: Path | None, keep: tuple[str, ...], tail: int, output: str) -> None:
    """Collect what a bug report needs: versions, configuration, GpuNodes, queues, the state of workloads, Events, logs.

    Secrets are left out, and names of namespaces, workloads, jobs, pods, LocalQueues and users are pseudonyms; those of
    namespaces that --keep names stay. What may not be read is listed in its notes.txt.

    \b
    Examples:
      tessera support-bundle
      tessera support-bundle --keep team-a --tail 200 -f /tmp/report.tar.gz
    """
    path = file or Path(time.strftime("tessera-support-%Y%m%d-%H%M%S.tar.gz", time.gmtime()))

    async def work() -> None:
        async with opened(where) as client:
            bundle = await Collector(client, where, keep, tail).collect()
        _written(path, packed(bundle, time.time()))
        if output != "text":
            printed({"file": str(path), "files": sorted(bundle.files), "notes": bundle.notes}, output)
            return
        for note in bundle.notes:
            aside(note)
        click.echo(f"{path}: {plural(len(bundle.files), 'file')}; look through it before you hand it on")

    run(work())


def packed(bundle: Bundle, at_s: float) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as archive:
        for name, body in sorted(bundle.files.items()):
            entry = tarfile.TarInfo(f"{FOLDER}/{name}")
            entry.size, entry.mtime, entry.mode = len(body), int(at_s), _OWN_ALONE
            archive.addfile(entry, io.BytesIO(body))
    return raw.getvalue()


def _written(path: Path, body: bytes) -> None:
    """Write a new file that no other user may read."""
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWN_ALONE), "wb") as file:
            file.write(body)
    except OSError as failed:
        raise click.ClickException(say.not_written(path, reason(failed))) from None
