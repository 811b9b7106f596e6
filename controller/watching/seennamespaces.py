"""Names of namespaces, including those that are gone."""

from controller.objects.core import Namespace
from controller.watching.kinds import reader


class SeenNamespaces:
    """A decoder for the watch of Namespaces that keeps the name of each it ever saw: stories name some that are
    gone.
    """

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self._read = reader(Namespace)

    def read(self, raw: bytes) -> Namespace:
        found = self._read(raw)
        self.seen.add(found.metadata.name)
        return found
