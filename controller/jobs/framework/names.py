"""Labels, annotations and names that tie jobs to their queues and workloads: Kueue's, where it has one."""

import hashlib
import re
from typing import Final

from inventory.api.names import PREFIX, WORKLOAD_OF_POD, WORKLOAD_SLICE

QUEUE_NAME: Final = "kueue.x-k8s.io/queue-name"
PRIORITY_CLASS: Final = "kueue.x-k8s.io/priority-class"
MAX_EXEC_TIME: Final = "kueue.x-k8s.io/max-exec-time-seconds"
PREBUILT_WORKLOAD: Final = "kueue.x-k8s.io/prebuilt-workload-name"
MIN_PARALLELISM: Final = "kueue.x-k8s.io/job-min-parallelism"
COMPLETIONS_EQUAL_PARALLELISM: Final = "kueue.x-k8s.io/job-completions-equal-parallelism"
ELASTIC_JOB: Final = "kueue.x-k8s.io/elastic-job"
REPLACEMENT_FOR: Final = "kueue.x-k8s.io/workload-slice-replacement-for"
SLICE_NAME: Final = WORKLOAD_SLICE
ADMISSION_GATED_BY: Final = "kueue.x-k8s.io/admission-gated-by"
JOB_UID: Final = "kueue.x-k8s.io/job-uid"
JOB_OWNER_GVK: Final = "kueue.x-k8s.io/job-owner-gvk"
JOB_OWNER_NAME: Final = "kueue.x-k8s.io/job-owner-name"
COMPONENT_INDEX: Final = "kueue.x-k8s.io/component-workload-index"
MULTIKUEUE_ORIGIN: Final = "kueue.x-k8s.io/multikueue-origin"
RESOURCE_IN_USE: Final = "kueue.x-k8s.io/resource-in-use"

WORKLOAD: Final = WORKLOAD_OF_POD
POD_SET: Final = "kueue.x-k8s.io/podset"
CLUSTER_QUEUE_NAME: Final = "kueue.x-k8s.io/cluster-queue-name"
LOCAL_QUEUE_NAME: Final = "kueue.x-k8s.io/local-queue-name"
TOPOLOGY_GATE: Final = "kueue.x-k8s.io/topology"


DEFAULT_PRIORITY_CLASS: Final = "default"

# Annotations of a job that are copied to its workload.
PASSED_ON: Final = ("provreq.kueue.x-k8s.io/", PREFIX)

_MAX_NAME: Final = 253
_HASH_LENGTH: Final = 5
_MAX_LABEL_VALUE: Final = 63
_LABEL_VALUE: Final = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", re.ASCII)
_LABEL_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)
_SUBDOMAIN: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*", re.ASCII)


def workload_name(kind: str, group: str, name: str, uid: str, *, generation: int | str | None = None) -> str:
    """``<kind>-<name>-<5 hex>``; another uid gives another name. ``generation`` tells the slices of an elastic job
    apart.
    """
    parts = [kind, group, name, uid] + ([] if generation is None else [str(generation)])
    digest = hashlib.sha1("\n".join(parts).encode(), usedforsecurity=False).hexdigest()[:_HASH_LENGTH]
    head = f"{kind.lower()}-{name}"[: _MAX_NAME - _HASH_LENGTH - 1]
    return f"{head}-{digest}"


def part_name(whole: str, shown: str, part: str) -> str:
    """``<whole>-<shown>-<5 hex>``, the name of a part of a group; other parts have other names."""
    digest = hashlib.sha1(f"{whole}\n{part}".encode(), usedforsecurity=False).hexdigest()[:_HASH_LENGTH]
    head = f"{whole}-{shown}".rstrip("-")[: _MAX_NAME - _HASH_LENGTH - 1].rstrip("-.")
    return f"{head}-{digest}"


def shortened(name: str) -> str:
    """A workload's name cut to the length of a label's value; the dash and the digits at its end stay."""
    end = _HASH_LENGTH + 1
    return f"{name[:-end][: _MAX_LABEL_VALUE - end]}{name[-end:]}" if len(name) > _MAX_LABEL_VALUE else name


def is_label_value(value: str) -> bool:
    return _LABEL_VALUE.fullmatch(value) is not None


def is_label_key(key: str) -> bool:
    """Whether the key is ``name`` or ``prefix/name``, as Kubernetes qualifies names."""
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > _MAX_NAME or _SUBDOMAIN.fullmatch(prefix) is None):
        return False
    return _LABEL_NAME.fullmatch(name) is not None


def is_object_name(name: str) -> bool:
    return len(name) <= _MAX_NAME and _SUBDOMAIN.fullmatch(name) is not None


def is_label_name(name: str) -> bool:
    """Whether the name is a DNS label, as Namespaces are named (RFC 1123)."""
    return len(name) <= _MAX_LABEL_VALUE and "." not in name and is_object_name(name)
