"""Guesses the object of a cluster that a name was meant for that no object has, once a command has failed."""

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any, Final

from controller.cluster.watching.kinds import NAMESPACES
from kube.client import Client, Selection
from kube.errors import KubeError
from kube.resources import Resource

Json = dict[str, Any]
_NEAR: Final = 0.6
_SHOWN: Final = 8
_MOST: Final = 5_000
"""The most objects that are compared."""


def _own_name(given: Json) -> Iterable[str]:
    return (str(given["metadata"]["name"]),)


async def meant(
    client: Client,
    resource: Resource,
    name: str,
    namespace: str | None = None,
    names: Callable[[Json], Iterable[str]] = _own_name,
) -> str:
    """A sentence to put behind one that ends without a full stop; empty where no name is near, or where objects may not
    be listed.

    A namespace that does not exist is told first: then no name in it helps. ``names`` gives the names of an object.
    """
    spaces = await _names(client, NAMESPACES, None, _own_name) if namespace is not None else None
    if namespace is not None and spaces is not None and namespace not in spaces:
        return f". There is no namespace {namespace}{_near(namespace, spaces)}"
    return _near(name, await _names(client, resource, namespace, names) or ())


async def meant_or_there(client: Client, resource: Resource, name: str) -> str:
    """The line of ``meant`` for an object of the whole cluster; where no name is near, the names that there are."""
    names = await _names(client, resource, None, _own_name)
    if names is None:
        return ""
    if near := _near(name, names):
        return near
    more = len(names) - _SHOWN
    shown = ", ".join(sorted(names)[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
    return f". There are: {shown}" if names else ". There is none"


async def meant_elsewhere(
    client: Client, resource: Resource, name: str, namespace: str, names: Callable[[Json], Iterable[str]] = _own_name
) -> str:
    """The line of ``meant``; where another namespace has one of that very name, that is told first, as NAMESPACE/NAME.

    Namespaces are looked into as far as the objects of all of them may be listed.
    """
    spaces = await _names(client, NAMESPACES, None, _own_name)
    if spaces is not None and namespace not in spaces:
        return await meant(client, resource, name, namespace, names)
    try:
        every = await listed(client, resource, None)
    except KubeError:
        every = []
    there = {str(each["metadata"]["namespace"]) for each in every if name in names(each)} - {namespace}
    if there:
        nearest = get_close_matches(namespace, sorted(there), n=1, cutoff=_NEAR) or sorted(there)
        return f". Did you mean {nearest[0]}/{name}?"
    if near := await meant(client, resource, name, namespace, names):
        return near
    others = {f"{each['metadata']['namespace']}/{one}": one for each in every for one in names(each)}
    found = get_close_matches(name, sorted(set(others.values())), n=1, cutoff=_NEAR)
    return next((f". Did you mean {key}?" for key, one in sorted(others.items()) if [one] == found), "")


def _near(name: str, names: Iterable[str]) -> str:
    lowered = {each.lower(): each for each in sorted(names, reverse=True)}
    near = get_close_matches(name.lower(), lowered, n=1, cutoff=_NEAR)
    return f". Did you mean {lowered[near[0]]}?" if near else ""


async def _names(
    client: Client, resource: Resource, namespace: str | None, names: Callable[[Json], Iterable[str]]
) -> set[str] | None:
    """The names of the objects; None where they may not be listed."""
    try:
        return {one for each in await listed(client, resource, namespace) for one in names(each)}
    except KubeError:
        return None


async def listed(client: Client, resource: Resource, namespace: str | None) -> list[Json]:
    """The metadata of the kind's objects, at most as many as are compared. Raises KubeError."""
    import msgspec

    objects: list[Json] = []
    pages = client.list_pages(resource, msgspec.json.decode, Selection(namespace=namespace), metadata_only=True)
    async for page in pages:
        objects += page.items
        if len(objects) >= _MOST:
            break
    await pages.aclose()
    return objects
