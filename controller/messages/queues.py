"""Sentences about queues: why one admits nothing (the condition Active=False of ClusterQueues and LocalQueues,
``tessera queue``), and which units a LocalQueue would admit.
"""

from typing import Final

import msgspec

from inventory.words.catalog import Kind, Place, said

_SHOWN: Final = 80
_refusal = said(Place.QUEUES, Kind.REFUSAL)
_problem = said(Place.QUEUES, Kind.PART)
_waiting = said(Place.QUEUES, Kind.WAITING)
_counted = said(Place.UNITS, Kind.NOTE)
_count = said(Place.UNITS, Kind.PART)


@_problem
def wrong_annotation(key: str, value: str, expected: str) -> str:
    """``value``: what the annotation says, in full; it is told cut off."""
    quoted = msgspec.json.encode(value[:_SHOWN]).decode()
    return f"metadata.annotations[{key}]: found {quoted}, expected {expected}. Correct it"


@_waiting
def deleted() -> str:
    return "The ClusterQueue is being deleted"


@_refusal
def stopped(policy: str) -> str:
    return f"The ClusterQueue is stopped ({policy}). Set its spec.stopPolicy to None to start it again"


@_refusal
def no_flavors(names: str) -> str:
    return f"There are no such ResourceFlavors: {names}. Create them, or take them out of spec.resourceGroups"


@_refusal
def no_topologies(names: str) -> str:
    return f"There are no such Topologies: {names}. Create them, or correct spec.topologyName of the flavors"


@_refusal
def cohorts_in_circle() -> str:
    return "Its Cohorts name each other in a circle. Correct spec.parentName of one of them"


@_refusal
def no_checks(names: str) -> str:
    return f"There are no such AdmissionChecks: {names}. Create them, or take them out of spec.admissionChecksStrategy"


@_refusal
def checks_inactive(names: str) -> str:
    return f"These AdmissionChecks are not active: {names}. See that their controllers run"


@_refusal
def several_multikueue_checks(names: str) -> str:
    return f"One MultiKueue check at most, found {names}. Keep one of them in spec.admissionChecksStrategy"


@_refusal
def multikueue_by_flavor() -> str:
    return "A MultiKueue check holds for all flavors or none. Take its onFlavors away"


@_refusal
def multikueue_with_provisioning() -> str:
    return "A MultiKueue check stands beside one that makes nodes. Keep one of the two"


@_refusal
def local_queue_stopped(policy: str) -> str:
    return f"The LocalQueue is stopped ({policy}). Set its spec.stopPolicy to None to start it again"


@_refusal
def leads_nowhere(queue: str) -> str:
    return f"There is no ClusterQueue {queue}. Create it, or correct the LocalQueue's spec.clusterQueue"


@_refusal
def leads_to_inactive(queue: str) -> str:
    return f"ClusterQueue {queue} is not active. Its own condition Active says why"


@_counted
def units_counted(priority: object, counts: str) -> str:
    return f"Would be admitted now at priority {priority}: {counts}"


@_counted
def no_units_counted() -> str:
    return "No flavor of the ClusterQueue has what its units request"


@_count
def units_of_flavor(unit: str, flavor: str, admissible: object) -> str:
    return f"{unit} on {flavor}: {admissible}"


@_count
def units_of_flavor_later(unit: str, flavor: str, admissible: object, later: str) -> str:
    return f"{unit} on {flavor}: {admissible}, one more at {later}"
