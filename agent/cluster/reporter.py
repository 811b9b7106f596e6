"""The receivers of the node's state beside the kubelet: the API server, or none."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from agent.config.settings import Settings
from agent.health.states import Transition
from agent.kubelet.holders import Holder
from agent.nodestate import NodeState
from inventory.devices import DeviceId
from kube.client import Client


class Follower(Protocol):
    """A part of the agent that watches the API server."""

    async def follow(self, client: Client, node_name: str, random: Callable[[], float]) -> None:
        """Follow the API server until cancelled."""


class Reporter(Protocol):
    """A receiver of the node's state. All methods but ``run`` return at once; what cannot be written now is written
    later, and the latest state wins.
    """

    async def run(self) -> None:
        """Write until cancelled."""

    def follow(self, follower: Follower) -> None:
        """Give ``follower`` the API server while ``run`` runs."""

    def reconfigure(self, settings: Settings) -> None:
        """Take new settings; what they show differently is in the next ``publish``."""

    def restarted(self) -> None:
        """Tell the reporter that an earlier agent has reported this node since it booted. It is called before ``run``,
        or not at all.
        """

    def heard(self, uid: str, labels: Mapping[str, str], conditions: Mapping[str, str]) -> None:
        """Take the Node's uid and labels, and the status of each condition by its type, as a watch saw them."""

    def gpunode_gone(self) -> None:
        """Make the GpuNode anew, which somebody has deleted, if the Node is there."""

    def publish(self, node_state: NodeState, holders: Mapping[DeviceId, Holder]) -> None:
        """Show this state from now on: node labels and the GpuNode object."""

    def transition(self, change: Transition) -> None:
        """Report that a device changed its health state."""

    def problem(self, text: str) -> None:
        """Report that a setting could not be carried out; ``text`` is one line for an administrator."""

    def warning(self, reason: str, action: str, text: str) -> None:
        """Report that something has happened to the node; ``reason`` and ``action`` are an Event's, in CamelCase."""

    def note(self, reason: str, action: str, text: str) -> None:
        """Report, like ``warning``, what is as it should be."""


class NoCluster(Exception):  # noqa: N818 - a state, not a mistake
    """The kubeconfig or service account cannot be used; one line says why."""


class NoReporter:
    """The reporter for ``--kubeconfig none``: the agent serves its kubelet alone."""

    async def run(self) -> None:
        await asyncio.Event().wait()

    def follow(self, follower: Follower) -> None: ...

    def reconfigure(self, settings: Settings) -> None: ...

    def restarted(self) -> None: ...

    def heard(self, uid: str, labels: Mapping[str, str], conditions: Mapping[str, str]) -> None: ...

    def gpunode_gone(self) -> None: ...

    def publish(self, node_state: NodeState, holders: Mapping[DeviceId, Holder]) -> None: ...

    def transition(self, change: Transition) -> None: ...

    def problem(self, text: str) -> None: ...

    def warning(self, reason: str, action: str, text: str) -> None: ...

    def note(self, reason: str, action: str, text: str) -> None: ...
