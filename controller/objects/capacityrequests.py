"""The CapacityRequest, ``tessera.dev/v1alpha1``: what a program would like to have, and what it was answered.

Durations are texts as Go writes them (``90s``, ``2h``), times are RFC 3339. ``notBefore`` and ``notAfter`` may be
either: a duration counts from the request's creation.
"""

from typing import Final

import msgspec

from controller.objects.core import PodTemplateSpec
from controller.objects.meta import KubernetesObject, Resources, Struct, Time
from controller.objects.workload import Count
from inventory.api.names import GROUP, VERSION

API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "CapacityRequest"
PLURAL: Final = "capacityrequests"

GRANTED: Final = "Granted"
OFFERED: Final = "Offered"
REFUSED: Final = "Refused"
EXPIRED: Final = "Expired"
RELEASED: Final = "Released"
STATES: Final = (GRANTED, OFFERED, REFUSED, EXPIRED, RELEASED)
"""The states of a request; one that has no answer yet has none of them. The last three are final."""

MOST_UNITS: Final = 100_000
LONGEST_NAME: Final = 63
"""Characters of a request's name, which is the value of a label."""


class CapacityRequestSpec(Struct, frozen=True, kw_only=True):
    """The wish. One of ``unit``, what one unit requests, and ``template``, a pod that is one unit, is set."""

    queue_name: str = ""
    unit: Resources = msgspec.field(default_factory=dict)
    template: PodTemplateSpec | None = None
    min: Count | None = None
    max: Count | None = None
    duration: str = ""
    not_before: str = ""
    not_after: str = ""
    answer_within: str = ""
    priority_class_name: str = ""
    use_within: str = ""
    renew: str = ""
    accept: str = ""


class CapacityOffer(Struct, frozen=True, kw_only=True):
    """Units that the program may have. ``until`` None: without an end. ``held``: they are kept for it until
    ``stands_until``. ``now``: they were free when the offer was made; ``elsewhere``: without the template's node
    selector and affinity.
    """

    id: str
    units: Count
    from_: Time = msgspec.field(name="from")
    until: Time | None = None
    flavor: str = ""
    stands_until: Time
    held: bool = False
    now: bool = False
    elsewhere: bool = False
    why: str = ""


class CapacityRequestStatus(Struct, frozen=True, kw_only=True):
    """The answer. ``workload``: the Workload that holds the units, or waits for them. ``accepted``: the offer that
    was taken and is waited for. ``used``: units of a grant that pods run on; ``used_at``: when that last changed.
    ``holds_until``: when the last of its offers may be held.
    """

    state: str = ""
    units: Count = 0
    from_: Time | None = msgspec.field(name="from", default=None)
    until: Time | None = None
    flavor: str = ""
    offers: tuple[CapacityOffer, ...] = ()
    accepted: str = ""
    message: str = ""
    workload: str = ""
    used: Count = 0
    used_at: Time | None = None
    holds_until: Time | None = None


class CapacityRequest(KubernetesObject, frozen=True, kw_only=True):
    spec: CapacityRequestSpec = CapacityRequestSpec()
    status: CapacityRequestStatus = CapacityRequestStatus()
