"""Whether a queue admits: its ``stopPolicy``, which ``tessera queue`` and ``tessera stop`` write."""

import click

from cli.cluster import Where, is_kind_missing
from cli.console import Json
from cli.kubeapi import MANAGER, opened
from cli.output import printed
from cli.words import queues as say
from kube.errors import NotFoundError
from kube.resources import Resource


async def set_policy(
    where: Where, resource: Resource, named: tuple[str | None, str], policy: str, *, dry_run: str, output: str
) -> None:
    """``named``: namespace and name; no namespace is the context's where the kind has namespaces."""
    space, name = named
    if resource.namespaced:
        space = space or where.cluster().namespace
    shown = f"{space}/{name}" if space else name
    async with opened(where) as client:
        try:
            before = await client.get(resource, name, Json, namespace=space)
            if dry_run != "client":
                body, dry = {"spec": {"stopPolicy": policy}}, dry_run == "server"
                await client.merge_patch(
                    resource, name, body, Json, namespace=space, field_manager=MANAGER, dry_run=dry
                )
        except NotFoundError as failed:
            if is_kind_missing(failed):
                raise
            raise click.ClickException(say.none_of_that_name(shown, resource.kind)) from None
    was = (before.get("spec") or {}).get("stopPolicy") or "None"
    if output != "text":
        told = {"kind": resource.kind, "name": shown, "stopPolicy": policy, "before": was}
        printed(told | ({} if dry_run == "none" else {"dryRun": dry_run}), output)
        return
    dry_word = "" if dry_run == "none" else f" (dry run: {dry_run})"
    change = f" (was {was})" if was != policy else " already"
    click.echo(f"{resource.kind} {shown}: stopPolicy {policy}{change}{dry_word}")
