"""A pod's uid and labels as labels of its series, as dcgm-exporter writes them, and how many there may be. Pure.

A label's name has every character that Prometheus does not take replaced by ``_``; a name that a series has already is
left out. These labels make no more series, but each pod's series become its own: they are written only where they are
asked for.
"""

import re
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from agent.config.settings import MetricsSettings
from agent.kubelet.containers import ClaimUse, PodIdentity

POD_UID = "pod_uid"
MOST_LABELS = 16
"""The most labels of one pod on its series, in the order of their names; further ones are left out."""
_UNFIT = re.compile(r"[^a-zA-Z0-9_]", re.ASCII)

CLAIM_LABELS = (
    "dra_claim_name",
    "dra_claim_namespace",
    "dra_driver_name",
    "dra_pool_name",
    "dra_device_name",
    "dra_mig_profile",
    "dra_mig_device_uuid",
)
"""dcgm-exporter's labels of a device that a pod has by claim."""

RESERVED = frozenset(
    {
        *("gpu", "UUID", "pci_bus_id", "device", "modelName", "GPU_I_PROFILE", "GPU_I_ID", "Hostname", "hostname"),
        *("uuid", "container_name", "pod_namespace", "pod_name"),
        *("container", "namespace", "pod", POD_UID, "err_code", "err_msg", "xid", "clock_event"),
        *CLAIM_LABELS,
        *("window_size_in_ms", "health_watch", "health_error_code", "instance", "job"),
    }
)
"""The names that series have already, or that Prometheus gives them."""


class PodLabelChoice(Struct, frozen=True):
    """The pod's uid and labels that go on series. ``allowed``: regular expressions, one of which must be found in a
    label's name; none given, all labels are allowed, as with dcgm-exporter.
    """

    uid: bool = False
    labels: bool = False
    allowed: tuple[re.Pattern[str], ...] = ()

    @classmethod
    def of(cls, settings: MetricsSettings) -> "PodLabelChoice":
        return cls(settings.pod_uid, settings.pod_labels, tuple(map(re.compile, settings.pod_label_allowlist)))

    def pairs(self, pod: PodIdentity) -> tuple[tuple[str, str], ...]:
        """The names and values of the labels, the uid first, then labels by name; each name once."""
        by_name = {POD_UID: pod.uid} if self.uid else {}
        for key, value in self._chosen(pod.labels):
            name = label_name(key)
            if (
                len(by_name) - self.uid < MOST_LABELS
                and name not in RESERVED
                and not name.startswith(("DCGM_FI_", "__"))
            ):
                by_name.setdefault(name, value)
        return tuple(by_name.items())

    def _chosen(self, labels: Mapping[str, str]) -> Sequence[tuple[str, str]]:
        return sorted((key, value) for key, value in labels.items() if self.labels and _fits(key, self.allowed))


def _fits(key: str, allowed: Collection[re.Pattern[str]]) -> bool:
    return not allowed or any(pattern.search(key) for pattern in allowed)


def label_name(key: str) -> str:
    """A Kubernetes label's key as a Prometheus label's name."""
    name = _UNFIT.sub("_", key)
    return f"_{name}" if name[:1].isdigit() else name


def claim_pairs(claim: ClaimUse) -> tuple[tuple[str, str], ...]:
    """dcgm-exporter's labels of a claim; none for a device without one."""
    pairs = zip(
        CLAIM_LABELS,
        (claim.name, claim.namespace, claim.driver, claim.pool, claim.device, claim.profile, claim.mig),
        strict=True,
    )
    return tuple((label, value) for label, value in pairs if value)
