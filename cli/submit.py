"""``tessera submit``: creates objects with the caller's own rights, and follows them into their queues."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
from rich.console import RenderableType
from rich.text import Text

from cli import forecasts
from cli.access.cluster import Controller, UnreachableError, Where, awaited, run
from cli.access.kubeapi import kube_options, opened, space_option
from cli.access.spaces import namespace_told
from cli.manifests import WrongInputError, in_order, read_documents, warn
from cli.options import Duration
from cli.printing.console import Json, aside, patience
from cli.printing.console import show as print_parts
from cli.printing.output import output_option, printed
from cli.refusals import refused
from cli.targets import Target, mistaken_labels, target, unknown_classes, unknown_queues
from cli.words import given as say
from controller.cluster.watching.kinds import WORKLOADS
from controller.insight.simulation.documents import Document, InputError
from controller.jobs.framework import names
from kube.client import Client, Selection
from kube.errors import KubeError, NotFoundError
from kube.resources import Resource

_QUEUED_S: Final = 15.0
"""The seconds that the controller may take to make the Workload of a job."""
_LOOK_S: Final = 0.3
_WAIT_LOOK_S: Final = 2.0
_SETTLED: Final = ("Admitted", "Finished", "Gone")
"""The states in which the wait for a workload ends."""
_STATES: Final = ("Finished", "Admitted", "QuotaReserved")


@click.command("submit", short_help="Create jobs and follow them into the queue; or say what would become of them.")
@click.argument("manifests", nargs=-1, required=True, type=click.Path(path_type=Path, allow_dash=True))
@click.option("--dry-run", is_flag=True, help="Create nothing: the API server checks it, the controller forecasts it.")
@click.option("--wait", is_flag=True, help="Until every workload is admitted.")
@click.option(
    "--timeout",
    type=Duration(),
    help="--wait: give up after so long (30s, 2h30m), with exit code 1; without it, never.",
)
@click.option("--allow-unknown-fields", is_flag=True, help="Fields that no API server knows are a note and no error.")
@space_option
@kube_options
@output_option
def submit(
    where: Where,
    manifests: tuple[Path, ...],
    dry_run: bool,
    wait: bool,
    timeout: float | None,
    allow_unknown_fields: bool,
    namespace: str | None,
    output: str,
) -> None:
    """Create the objects of MANIFESTS, and tell of each that is queued its place and when it is likely to start.

    MANIFESTS are files, folders of them, or - for standard input. With --dry-run nothing is created: the API server
    checks each object, and the controller says whether it would start now, else why not, when, and what would let it.
    Nothing is created where a field is unknown or a class is not there: exit code 2, as in tessera simulate. A queue
    that the namespace does not have is a warning.

    \b
    Examples:
      tessera submit train.yaml
      tessera submit --dry-run -n team-a train.yaml
      tessera submit --wait jobs/
      tessera submit --wait --timeout 30m train.yaml
      tessera submit --dry-run train.yaml -o json | jq '.items[].forecast.changes'
    """
    if timeout is not None and not wait:
        raise click.UsageError(say.timeout_without_wait())
    try:
        documents = read_documents(manifests, allow_unknown=allow_unknown_fields)
    except InputError as wrong:
        raise WrongInputError(str(wrong)) from None

    async def work() -> None:
        async with opened(where) as client:
            one = _Submission(client, Controller(where, where.cluster(), client), dry_run=dry_run)
            rows: list[Json] = []
            targets = [target(each, namespace, where.cluster().namespace) for each in documents]
            async with patience(awaited):
                warn(await unknown_queues(client, targets))
                if wrong := [*await mistaken_labels(client, targets), *await unknown_classes(client, documents)]:
                    raise WrongInputError("\n".join(in_order(wrong)))
            try:
                for each in targets:
                    async with patience(awaited), namespace_told(client, each.place, each.namespace):
                        row, made = await _sent(one, each)
                    rows.append(row)
                    try:
                        async with patience(awaited):
                            row |= await one.followed(made, row["namespace"])
                    finally:
                        if output == "text":
                            print_parts(*_parts(row))
                if wait and not dry_run:
                    await _waited(one, rows, timeout, output)
            finally:
                # Objects created before a failure are told as well: nobody could find them by a generated name.
                if output != "text" and (rows or not documents):
                    printed({"dryRun": dry_run, "items": rows}, output)

    run(work(), patiently=False)


async def _sent(one: "_Submission", target: Target) -> tuple[Json, Json]:
    """Send an object as ``sent`` does. Raises WrongInputError for an object that is refused as it is written."""
    try:
        return await one.sent(target.document, target.namespace)
    except KubeError as failed:
        if line := refused(target.document, failed):
            raise WrongInputError(line) from None
        raise


async def _waited(one: "_Submission", rows: list[Json], timeout_s: float | None, output: str) -> None:
    """Tell each change until all are admitted. Raises click.ClickException when the time is over."""
    try:
        async with asyncio.timeout(timeout_s):
            async for row in one.admitted(rows):
                if output == "text":
                    click.echo(f"{row['workload']}: {row['state']}")
    except TimeoutError:
        left = [row["workload"] for row in rows if row["workload"] is not None and row["state"] not in _SETTLED]
        raise click.ClickException(say.not_admitted_in_time(f"{timeout_s:g}", ", ".join(left))) from None


class _Submission:
    def __init__(self, client: Client, controller: Controller, *, dry_run: bool) -> None:
        self._client = client
        self._controller = controller
        self._dry_run = dry_run
        self._resources: dict[tuple[str, str], Resource] = {}

    async def sent(self, document: Document, namespace: str) -> tuple[Json, Json]:
        """The row of one object, created or checked, and the object. Raises KubeError."""
        resource = await self._resource(document)
        space = namespace if resource.namespaced else None
        body = {**document.data, "metadata": {**document.data["metadata"]}}
        if space is not None:
            body["metadata"]["namespace"] = space
        made = await self._client.create(resource, body, Json, namespace=space, dry_run=self._dry_run)
        row: Json = {
            "kind": document.kind,
            "name": made["metadata"]["name"],
            "namespace": space,
            "created": not self._dry_run,
            "workload": None,
            "clusterQueue": None,
            "state": None,
            "position": None,
            "startsNow": None,
            "sentence": None,
            "forecast": None,
        }
        return row, made

    async def followed(self, made: Json, namespace: str | None) -> Json:
        """The further fields of an object's row, once it is queued. Raises KubeError."""
        if namespace is None or not _is_queued(made):
            return {}
        return await (self._foretold(made, namespace) if self._dry_run else self._queued(made, namespace))

    async def _resource(self, document: Document) -> Resource:
        """The resource of a document's kind. Raises click.ClickException for a kind that the API server does
        not have.
        """
        version, kind = document.version, document.kind
        if (version, kind) not in self._resources:
            path = f"/apis/{version}" if "/" in version else f"/api/{version}"
            found: list[Json] = []
            with suppress(NotFoundError):
                found = (await self._client.document(path, Json))["resources"]
            plural = next((each for each in found if each["kind"] == kind and "/" not in each["name"]), None)
            if plural is None:
                raise click.ClickException(say.unknown_kind(document.place(("kind",)), version, kind))
            group, _, bare = version.rpartition("/")
            self._resources[version, kind] = Resource(
                group, bare, plural["name"], kind, namespaced=bool(plural["namespaced"])
            )
        return self._resources[version, kind]

    async def _foretold(self, made: Json, namespace: str) -> Json:
        """The forecast for the object as the API server would keep it."""
        try:
            return await self._controller.forecast(made, namespace)
        except UnreachableError as failed:
            aside(f"there is no forecast: {failed}")
            return {}

    async def _queued(self, made: Json, namespace: str) -> Json:
        """The fields of a job once its Workload exists: state, place, and forecast where the controller gives one."""
        workload = await self._workload(made, namespace)
        if workload is None:
            aside(f"{namespace}/{made['metadata']['name']} has no Workload yet: tessera explain says why, later")
            return {}
        key = f"{namespace}/{workload['metadata']['name']}"
        fields: Json = {"workload": key, "state": state_of(workload)}
        try:
            explanation = await self._controller.ask("explain", workload=key)
        except UnreachableError as failed:
            aside(f"there is no forecast: {failed}")
            explanation = None
        if explanation is not None:
            said = explanation["blocked"] or explanation["decision"] or {}
            fields |= {key: explanation[key] for key in ("clusterQueue", "state", "position", "forecast")}
            fields["sentence"] = said.get("sentence")
        return fields

    async def _workload(self, made: Json, namespace: str) -> Json | None:
        if made["kind"] == WORKLOADS.kind:
            return made
        ours = Selection(namespace=namespace, label_selector=f"{names.JOB_UID}={made['metadata']['uid']}")
        async with asyncio.timeout(_QUEUED_S) as waiting:
            with suppress(TimeoutError):
                while True:
                    found = (await self._client.list_all(WORKLOADS, Json, ours)).items
                    if found:
                        return min(found, key=lambda each: str(each["metadata"]["name"]))
                    await asyncio.sleep(_LOOK_S)
        assert waiting.expired()
        return None

    async def admitted(self, rows: list[Json]) -> AsyncIterator[Json]:
        """Each row with a workload as often as its state changes, until all are admitted or gone."""
        left = [row for row in rows if row["workload"] is not None]
        while left := [row for row in left if row["state"] not in _SETTLED]:
            changed: list[Json] = []
            async with patience(partial("{} of {} not admitted yet".format, len(left), len(rows))):
                while not changed:
                    await asyncio.sleep(_WAIT_LOOK_S)
                    changed = [row for row in left if await self._has_changed(row)]
            for row in changed:
                yield row

    async def _has_changed(self, row: Json) -> bool:
        """Whether the state of the row's workload differs from the row's, which then takes it."""
        space, _, name = row["workload"].partition("/")
        try:
            state = state_of(await self._client.get(WORKLOADS, name, Json, namespace=space))
        except NotFoundError:
            state = "Gone"
        changed: bool = state != row["state"]
        row["state"] = state
        return changed


def state_of(workload: Json) -> str:
    conditions: list[Any] = (workload.get("status") or {}).get("conditions") or []
    true = {each["type"] for each in conditions if each.get("status") == "True"}
    return next((state for state in _STATES if state in true), "Pending")


def _is_queued(made: Json) -> bool:
    return made["kind"] == WORKLOADS.kind or bool((made["metadata"].get("labels") or {}).get(names.QUEUE_NAME))


def _parts(row: Json) -> Iterator[RenderableType]:
    where = f"{row['namespace']}/{row['name']}" if row["namespace"] else row["name"]
    done = "created" if row["created"] else "passes the API server's checks (dry run)"
    yield Text(f"{row['kind']} {where} {done}")
    queue = f"ClusterQueue {row['clusterQueue'] or '(none)'}"
    if row["startsNow"]:
        yield Text(f"It would start at once, in {queue}", style="green")
        return
    if row["startsNow"] is not None:
        yield Text(f"It would wait in {queue}", style="yellow")
    elif row["workload"] is not None:
        place = f", position {row['position'] + 1} in the queue" if row["position"] is not None else ""
        yield Text(f"Workload {row['workload']}: {row['state']} in {queue}{place}")
    if row["sentence"]:
        yield Text(row["sentence"])
    yield from forecasts.parts(row["forecast"])
