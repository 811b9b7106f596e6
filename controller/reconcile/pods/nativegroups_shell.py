"""Kubernetes' own PodGroups and CompositePodGroups, ``scheduling.k8s.io``: followed in the version that is served, from
when a queued pod names one and for as long as the API is there.
"""

from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final

from controller.foreign.podgroups.native import tree_of
from controller.jobs.framework.podview import GroupName
from controller.jobs.framework.raw import JobError, Json, text
from controller.objects.nativegroups import COMPOSITE_VERSION, DEEPEST_NATIVE, NATIVE
from controller.reconcile.jobshell.followed_shell import GROUP_KINDS, Followed
from kube.client import Client
from kube.clock import Clock
from kube.reading.entries import ObjectKey
from kube.resources import Resource

COMPOSITE_KINDS: Final = (
    Resource(NATIVE, COMPOSITE_VERSION, "compositepodgroups", "CompositePodGroup", namespaced=True),
)


class NativeGroups:
    """PodGroups with the CompositePodGroups above them. ``changed`` gets the key of the Workload of a group that
    changed, None when any may have.
    """

    def __init__(
        self,
        client: Client,
        changed: Callable[[ObjectKey | None], None],
        *,
        clock: Clock,
        random: Callable[[], float],
    ) -> None:
        self._changed = changed
        self._groups = Followed(client, GROUP_KINDS, self._group, clock=clock, random=random)
        self._composites = Followed(client, COMPOSITE_KINDS, self._composite, clock=clock, random=random)

    def runs(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        yield "native-pod-groups", self._groups.run()
        yield "composite-pod-groups", self._composites.run()

    def known(self, namespace: str, name: GroupName) -> bool:
        """Whether ``get`` and ``find`` know all that the group is read from. From now on that is followed."""
        if not self._groups.need():
            return False
        group = None if name.composite else self._groups.get(ObjectKey(namespace, name.name))
        below_another = name.composite or (group is not None and bool(_parent(group)))
        return not below_another or self._composites.need()

    def get(self, namespace: str, name: GroupName) -> Json | None:
        """The group as ``native.read`` takes it; None if there is none."""
        if not name.composite:
            return self._groups.get(ObjectKey(namespace, name.name))
        composites = self._composites.of_namespace(namespace)
        return tree_of(name.name, self._groups.of_namespace(namespace), composites)

    def find(self, namespace: str) -> Callable[[str, bool], Json | None]:
        """A ``native.Find`` of the namespace."""
        return lambda name, composite: (self._composites if composite else self._groups).get(ObjectKey(namespace, name))

    def _group(self, key: ObjectKey | None) -> None:
        """Tells of the group's own Workload, and of those of all that it is below."""
        if key is None:
            self._changed(None)
            return
        self._changed(ObjectKey(key.namespace, GroupName(None, key.name).workload))
        at = self._groups.get(key)
        for _ in range(DEEPEST_NATIVE if at is not None else 0):
            parent = _parent(at)
            if not parent:
                return
            self._changed(ObjectKey(key.namespace, GroupName(None, parent, composite=True).workload))
            at = self._composites.get(ObjectKey(key.namespace, parent))

    def _composite(self, _key: ObjectKey | None) -> None:
        self._changed(None)  # trees are few, and a group in the middle changes all that are above and below it


def _parent(group: Json | None) -> str:
    try:
        return "" if group is None else text(group, "spec", "parentCompositePodGroupName")
    except JobError:
        return ""
