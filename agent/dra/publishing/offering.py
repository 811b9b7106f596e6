"""The devices that the node offers by claim now, and their faults, from the node state. Without I/O.

The devices themselves change only with the hardware and the layout, and are made once for each discovery; health
becomes taints on them. A MIG device has its GPU's faults; one that exists has faults of its own besides. A GPU that was
removed stays while a claim holds it, tainted so that its pods are evicted: without the device nobody would.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from agent.dra.publishing.devices import DraDevice, Offer, offered
from agent.dra.publishing.partitions import divisible, instance
from agent.dra.publishing.taints import LOST, taints
from agent.nodestate import NodeState
from inventory.devices import GpuUuid, MigUuid, NodeInventory

GONE: Final = "the GPU is no longer there"


class Offering:
    """The offer of one node. ``held`` are the GPUs that claims have. ``_plain`` is the offer without taints, made of
    ``_made_of`` for ``_made_for``; ``_hosts`` are the GPU of each device, and its MIG instance where that exists;
    ``_gone`` are the GPUs in it that are not on the node any more.
    """

    def __init__(self, node_state: NodeState, held: Callable[[], Collection[GpuUuid]]) -> None:
        self._node_state = node_state
        self._held = held
        self._made_of: NodeInventory | None = None
        self._made_for: tuple[object, ...] = ()
        self._gone: frozenset[GpuUuid] = frozenset()
        self._plain = Offer()
        self._names: Mapping[str, DraDevice] = {}
        self._hosts: Mapping[str, tuple[GpuUuid, MigUuid | None]] = {}

    def offer(self) -> Offer | None:
        """The offer with the taints that hold now; None where no GPU is given out by claim."""
        plain = self._present()
        if not plain.devices:
            return None
        withheld = self._node_state.withheld
        health = self._node_state.health
        by_host = {
            (gpu, mig): (LOST,) if gpu in self._gone else taints(health.state(gpu, mig), withheld.get(gpu))
            for gpu, mig in set(self._hosts.values())
        }
        return plain.tainted({name: by_host[host] for name, host in self._hosts.items()})

    def by_name(self) -> Mapping[str, DraDevice]:
        self._present()
        return self._names

    def ailments(self) -> Iterator[tuple[DraDevice, str]]:
        """Each device with its fault in words, empty where it has none."""
        self._present()
        reasons = {
            host: GONE if host[0] in self._gone else self._node_state.ailment(*host)
            for host in set(self._hosts.values())
        }
        for name, host in self._hosts.items():
            yield self._names[name], reasons[host]

    def refused(self) -> Iterator[tuple[str, str]]:
        """The devices that a claim is not to get, with the reason: the claim was scheduled before the taint was
        seen.
        """
        withheld = self._node_state.withheld
        for device, ailment in self.ailments():
            reason = ailment or withheld.get(device.gpu)
            if reason:
                yield device.name, reason

    def units(self) -> dict[str, str]:
        """The UUIDs of the devices that exist, by their names."""
        self._present()
        return {
            name: str(mig or gpu)
            for name, (gpu, mig) in self._hosts.items()
            if mig is not None or self._names[name].slot is None
        }

    def _present(self) -> Offer:
        node, claimed = self._node_state.node, self._node_state.by_claim
        shares = self._node_state.shares
        gone = frozenset(self._held()) - {gpu.uuid for gpu in node.gpus}
        made_for = (claimed, shares, gone)
        if self._made_of is not node or self._made_for != made_for:
            # A GPU in MIG mode whose profiles are not known can be given out neither whole nor in parts.
            usable = {
                gpu.uuid
                for gpu in node.gpus
                if gpu.uuid in claimed and (not gpu.mig_enabled or (gpu.uuid not in shares and divisible(gpu)))
            }
            self._plain = offered(node, usable, shares).with_gone(self._plain, gone)
            self._gone = gone
            self._names = {device.name: device for device in self._plain.devices}
            self._hosts = {device.name: self._host(device) for device in self._plain.devices}
            self._made_of, self._made_for = node, made_for
        return self._plain

    def _host(self, device: DraDevice) -> tuple[GpuUuid, MigUuid | None]:
        mig = None if device.slot is None else instance(self._node_state.node.gpu(device.gpu), device.slot)
        return device.gpu, None if mig is None else mig.uuid
