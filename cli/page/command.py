"""``tessera page``: shows the page in a browser, as long as the command runs."""

import asyncio
import os
import webbrowser
from contextlib import ExitStack, suppress

import click

from cli.access.cluster import Where, run
from cli.access.kubeapi import kube_options, opened
from cli.access.local import Whole
from cli.page.handover import handed_over
from cli.page.proxy import serve
from cli.words import given as say

_MOST_PORT = 65_535


@click.command(short_help="Open the page in a browser, with the rights of the kubeconfig.")
@click.option("--port", type=Whole(0, _MOST_PORT), default=0, show_default="any", help="Of this machine, at 127.0.0.1.")
@click.option("--no-browser", is_flag=True, help="Print the address alone.")
@kube_options
def page(where: Where, port: int, no_browser: bool) -> None:
    """Open the controller's page in a browser, until Ctrl-C.

    The browser talks to this command, which asks the API server with the kubeconfig's credentials; RBAC decides what
    is shown. The address works once, in one browser of this machine.

    \b
    Examples:
      tessera page
      tessera page --no-browser --port 8082
      ssh -L 8082:127.0.0.1:8082 HOST tessera page --no-browser --port 8082
    """

    async def serving(files: ExitStack) -> None:
        async def show(address: str) -> None:
            click.echo(f"{address}\nThis address works once. Ctrl-C ends it.")
            if not no_browser:
                await _browse(address, files)

        async with opened(where) as client:
            try:
                await serve(client, port, show, asyncio.Event())
            except OSError as failed:
                why = os.strerror(failed.errno) if failed.errno else str(failed)
                raise click.ClickException(say.port_taken(port, why)) from None

    with ExitStack() as files, suppress(KeyboardInterrupt):  # Ctrl-C is how the command ends, not a failure
        run(serving(files), patiently=False)


async def _browse(address: str, files: ExitStack) -> None:
    """Start the browser; the file that leads it to ``address`` stays as long as ``files``."""
    try:
        file = files.enter_context(handed_over(address))
    except OSError as failed:
        click.echo(f"no browser is started, open the address yourself: {failed}", err=True)
        return
    await asyncio.to_thread(webbrowser.open, file)
