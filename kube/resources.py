"""URL paths of the API's kinds."""

from urllib.parse import quote

from msgspec import Struct


class Resource(Struct, frozen=True):
    """One resource of the API: ``group`` is empty for the core group, ``plural`` as in the URL."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = False

    @property
    def api_version(self) -> str:
        """The ``apiVersion`` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, name: str | None = None, *, namespace: str | None = None, subresource: str | None = None) -> str:
        """The URL path of one object, of its ``subresource``, or of the collection.

        Namespaced kinds without ``namespace`` mean all namespaces.
        """
        if namespace is not None and not self.namespaced:
            raise ValueError(f"{self.plural} are not namespaced, got namespace {namespace!r}")
        if name is not None and self.namespaced and namespace is None:
            raise ValueError(f"{self.plural} are namespaced: {name!r} needs a namespace")
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if namespace is not None:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name is not None:
            parts.append(name)
        if subresource is not None:
            if name is None:
                raise ValueError(f"{self.plural}/{subresource} needs the name of an object")
            parts.append(subresource)
        return "/" + "/".join(quote(part, safe="") for part in parts)


NODES = Resource("", "v1", "nodes", "Node")
PODS = Resource("", "v1", "pods", "Pod", namespaced=True)
EVENTS = Resource("events.k8s.io", "v1", "events", "Event", namespaced=True)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True)
