"""Our own writes that the watch has not shown yet: nothing may be decided by a view that is older than they are."""

from controller.watching.ledger import number
from kube.reading.reflector import Key


class Echoes:
    """By object: the uid and version of the last write."""

    def __init__(self) -> None:
        self._written: dict[Key, tuple[str, int]] = {}

    def wrote(self, key: Key, uid: str, resource_version: str) -> None:
        self._written[key] = (uid, number(resource_version))

    def behind(self, key: Key, uid: str, resource_version: str) -> bool:
        """Whether this view of the object is older than our own last write to it."""
        written = self._written.get(key)
        if written is None:
            return False
        if written[0] == uid and number(resource_version) < written[1]:
            return True
        del self._written[key]
        return False

    def forget(self, key: Key) -> None:
        """The object is gone."""
        self._written.pop(key, None)
