"""Writes the fleet's objects into etcd, past the API server, in the form in which it keeps custom resources: JSON.

The API server takes some 800 creations a second on two cores, etcd ten times as many in transactions; at factor 1 that
is half a minute in place of four. The API server reads JSON of every kind (what it writes itself of Nodes and Pods is
protobuf), and its watch caches see these writes as they see its own.
"""

import asyncio
import base64
import itertools
import ssl
from collections.abc import Iterable, Iterator
from typing import Any, Final

import aiohttp
import msgspec

from hack.bench.fleet.objects import Json
from hack.cluster.cluster import Cluster
from hack.cluster.controlplane.pki import Pki

BATCH: Final = 100
"""etcd takes 128 operations in one transaction."""
PARALLEL: Final = 4
_PLURALS: Final = {"Node": "minions", "Pod": "pods", "GpuNode": "gpunodes", "Topology": "topologies"}


def key(given: Json) -> str:
    """Where the API server keeps the object."""
    meta, kind, group = given["metadata"], given["kind"], given["apiVersion"].rpartition("/")[0]
    parts = ("/registry", group, _PLURALS.get(kind, f"{kind.lower()}s"), meta.get("namespace", ""), meta["name"])
    return "/".join(filter(None, parts))


def transactions(objects: Iterable[Json]) -> Iterator[bytes]:
    """Bodies for etcd's gateway, in order."""
    for batch in _batched(objects):
        puts = [
            {"requestPut": {"key": _text(key(each).encode()), "value": _text(msgspec.json.encode(each))}}
            for each in batch
        ]
        yield msgspec.json.encode({"success": puts})


def _batched(objects: Iterable[Json]) -> Iterator[tuple[Json, ...]]:
    rest = iter(objects)
    while batch := tuple(itertools.islice(rest, BATCH)):
        yield batch


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


async def seed(cluster: Cluster, objects: Iterable[Json]) -> int:
    """The number of transactions. Raises RuntimeError with etcd's answer where it refuses one."""
    pki = Pki(cluster.paths.pki)
    tls = ssl.create_default_context(cafile=str(pki.ca))
    tls.load_cert_chain(str(pki.file("etcd.crt")), str(pki.file("etcd.key")))
    url = f"https://127.0.0.1:{cluster.state.ports['etcd']}/v3/kv/txn"
    bodies = transactions(objects)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls)) as session:
        done = await asyncio.gather(*(_work(session, url, bodies) for _ in range(PARALLEL)))
    return sum(done)


async def _work(session: aiohttp.ClientSession, url: str, bodies: Iterator[bytes]) -> int:
    done = 0
    for body in bodies:
        async with session.post(url, data=body) as answer:
            said: Any = await answer.json(content_type=None)
            if answer.status != 200 or not said.get("succeeded"):  # noqa: PLR2004 - HTTP's own number
                raise RuntimeError(f"etcd: {answer.status}: {str(said)[:300]}")
        done += 1
    return done
