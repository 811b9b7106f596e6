"""Foreign PodGroups, as the controller of plain pods needs them: it finds them by name, and writes their status.

Status is written if Tessera decides for a system and that system's scheduler does not run beside it: of all its
PodGroups but those of foreign Jobs, whose status ``controller.foreign.jobs`` writes.
"""

import random
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from typing import Any

from controller.cluster.watching.kinds import POD_GROUPS_OF, STATUS_APART
from controller.foreign.podgroups.native import Find
from controller.foreign.podgroups.status import UNSCHEDULABLE
from controller.foreign.rules.table import FOREIGN_JOB
from controller.jobs.framework.marks import NestingTooDeepError, controller_of
from controller.jobs.framework.podview import GroupName, SeenPod
from controller.jobs.framework.raw import JobError, Json
from controller.jobs.framework.settings import ClusterObjects, JobSettings
from controller.reconcile.jobshell.indexes import Index
from controller.reconcile.pods import groupstatus
from controller.reconcile.pods.group import SeenPods
from controller.reconcile.pods.nativegroups_shell import NativeGroups
from controller.reconcile.pods.podgroups_shell import PodGroups
from controller.scheduler.mirror.specs import System
from kube.client import Client
from kube.clock import Clock
from kube.objects import ObjectReference
from kube.reading.entries import ObjectKey
from kube.writing.writer import Writer


def unheard(_key: ObjectKey | None) -> None:
    """The listener before another one is set: it does nothing."""


class GroupObjects:
    """``systems``: the systems that Tessera decides for. ``written``: the systems whose PodGroups get their status from
    it: the scheduler of any other system writes it itself. ``publish`` records an Event. ``changed`` gets the key of a
    group that changed, None for any; ``PodController`` sets it once, when it is made.

    ``_owned`` has the groups by the uid of their controller. Only ``_tell`` writes it.
    """

    def __init__(
        self,
        client: Client,
        writer: Writer,
        systems: Collection[System],
        settings: JobSettings,
        cluster: ClusterObjects,
        publish: Callable[[ObjectReference, str, str, str], None],
        *,
        clock: Clock,
        written: Collection[System],
    ) -> None:
        self._writer = writer
        self._publish = publish
        self._systems = frozenset(systems)
        self._written = self._systems & frozenset(written)
        self._settings = settings
        self._cluster = cluster
        self.changed: Callable[[ObjectKey | None], None] = unheard
        self._owned = Index[str, tuple[System, ObjectKey]]()
        self._native = NativeGroups(client, self._tell_native, clock=clock, random=random.random)
        self._of = {
            system: PodGroups(
                client,
                resource,
                lambda key, system=system: self._tell(system, key),  # type: ignore[misc]
                clock=clock,
                random=random.random,
                subresource=resource in STATUS_APART,
            )
            for system, resource in POD_GROUPS_OF.items()
        }

    def runs(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        for system, groups in self._of.items():
            if system in self._systems:
                groups.need()
            yield f"{system}-pod-groups", groups.run()
        yield from self._native.runs()

    def known(self, namespace: str, name: GroupName) -> bool:
        """Whether ``get`` knows all PodGroups of that system. From now on they are watched."""
        if name.system is None:
            return self._native.known(namespace, name)
        return self._of[name.system].need()

    def get(self, namespace: str, name: GroupName) -> Json | None:
        if name.system is None:
            return self._native.get(namespace, name)
        return self._of[name.system].get(ObjectKey(namespace, name.name))

    def find(self, namespace: str) -> Find:
        """Finds Kubernetes' own groups of the namespace."""
        return self._native.find(namespace)

    def of_owner(self, uid: str) -> Iterator[ObjectKey]:
        """Groups that the object of this uid controls."""
        yield from {key for _, key in self._owned.of(uid)}

    async def tell(self, namespace: str, name: GroupName, seen: SeenPods, above: Sequence[SeenPod]) -> None:
        """Writes the status of the group of these pods, and of those above its minimum.

        Raises ActionFailedError and KubeError.
        """
        if name.system is None or name.system not in self._written:
            return
        status = groupstatus.of_pods(name, seen, above)
        written = await self._write(namespace, name.system, name.name, status)
        why = groupstatus.pods_are_told(seen.pod_group or {}, status)
        for pod in seen.pods if written and why else ():
            self._publish(ObjectReference("v1", "Pod", pod.name, pod.uid, namespace), "Warning", UNSCHEDULABLE, why)

    async def tell_alone(self, namespace: str, group: str) -> None:
        """Writes the status of the groups of this name, none of whose pods is queued by itself."""
        for system in sorted(self._written):
            name = GroupName(system, group)
            group_object = self._of[system].get(ObjectKey(namespace, group))
            owner = None if group_object is None else controller_of(group_object)
            if group_object is None or (owner is not None and owner.api_version == FOREIGN_JOB.api_version):
                continue
            try:
                status = groupstatus.of_owner(name, group_object, self._settings, self._cluster)
                await self._write(namespace, system, group, status)
            except (JobError, NestingTooDeepError):
                continue  # its pods are refused with the sentence, once there are some

    async def _write(self, namespace: str, system: System, name: str, status: Json) -> bool:
        return await self._of[system].write(self._writer, ObjectKey(namespace, name), status)

    def _tell_native(self, key: ObjectKey | None) -> None:
        self.changed(key)

    def _tell(self, system: System, key: ObjectKey | None) -> None:
        if key is not None:
            given = self._of[system].get(key)
            owner = None if given is None else controller_of(given)
            if owner is None:
                self._owned.drop((system, key))
            else:
                self._owned.put((system, key), owner.uid)
        self.changed(key)
