"""What ``Claims`` are told, and what they ask for in return: plain data both ways.

``Event``: something happened to a workload that has, gets or loses a claim. ``Effect``: what must be tried again
because of it; ``EngineState.carry_out`` does that.
"""

from typing import Final, NamedTuple

from controller.engine.claims.claimedplaces import Places
from controller.engine.claims.nominations import Nomination
from controller.engine.model.resources import ClusterQueueName, Usage, WorkloadKey
from controller.engine.queues.departures import Departed


class Preempts(NamedTuple):
    """The workload was decided on: its victims are evicted for it. ``usage`` is all that it will be charged."""

    key: WorkloadKey
    cluster_queue: ClusterQueueName
    usage: Usage
    victims: frozenset[WorkloadKey]
    places: Places
    """Where its pods are to run, by flavor."""
    nomination: Nomination | None
    """What the next cycles need not search for again; None where they must."""


class Admitted(NamedTuple):
    """The workload was decided on: it holds quota from now on, and these places."""

    key: WorkloadKey
    cluster_queue: ClusterQueueName
    places: Places


class Delayed(NamedTuple):
    """The workload was decided on: it still waits for its victims, or for what does not depend on capacity."""

    key: WorkloadKey


class Refused(NamedTuple):
    """The workload was decided on: neither admitted nor waiting for victims."""

    key: WorkloadKey


class Withdrawn(NamedTuple):
    """Outside of a decision: the workload waits no longer, is not tried any more, or waits in vain."""

    key: WorkloadKey


class Released(NamedTuple):
    """A tree was woken: something in it was released or changed, other than by the end of a claim."""


RELEASED: Final = Released()

Event = Preempts | Admitted | Delayed | Refused | Withdrawn | Departed | Released


class WakeAll(NamedTuple):
    """All pending workloads are tried again: nodes that a claim kept may be what any tree waits for."""


class WakeTree(NamedTuple):
    """The tree of this ClusterQueue is tried again."""

    cluster_queue: ClusterQueueName


class RunAgain(NamedTuple):
    """The next cycle may decide otherwise, though nothing is woken."""


Effect = WakeAll | WakeTree | RunAgain
