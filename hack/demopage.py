"""The demo's page at 127.0.0.1, for whoever asks on this machine: ``python -m hack.demopage KUBECONFIG FILE``.

It passes questions on alone. The address is written into FILE once it answers; it ends with the cluster.
"""

import asyncio
import signal
import sys
from pathlib import Path

from cli.page.proxy import PageProxy, aggregated
from kube import brokenpeers
from kube.access import load
from kube.client import Client

EVERY_S = 0.3


async def main(kubeconfig: str, noted: Path) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    brokenpeers.install()
    async with Client(load(kubeconfig)) as client:
        proxy = PageProxy(client, guarded=False)
        address = await proxy.start(0)
        await _answered(client)
        fresh = noted.with_suffix(".new")
        fresh.write_text(address)
        fresh.replace(noted)
        await stop.wait()
        await proxy.stop()


async def _answered(client: Client) -> None:
    """Return once the controller answers behind the API server."""
    path = aggregated("/")
    assert path is not None
    while True:
        async with client.passed_on("GET", path) as answer:
            if answer.status == 200:  # noqa: PLR2004 - HTTP's own number
                return
        await asyncio.sleep(EVERY_S)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
