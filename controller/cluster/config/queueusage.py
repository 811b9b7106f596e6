"""``tessera.kai.usage``: whether past use of KAI's Queues counts, in which window, and its source."""

from typing import Final
from urllib.parse import urlsplit

from controller.cluster.config.reader import Found
from controller.cluster.config.settings import UsageMetrics, UsageSource
from controller.scheduler.mirror.specs import GPU, MEMORY
from controller.scheduler.model.config import QueueUsage
from controller.scheduler.model.resources import CPU, ResourceName

_SECTION: Final = "tessera.kai.usage"
_SLIDING: Final = "sliding"
_NEEDED: Final = {"tumbling": "tumblingWindowStartTime", "cron": "cronString"}
"""The key that each type of windows requires."""
_METRICS: Final = {GPU: "gpu", CPU: "cpu", MEMORY: "memory"}
_OF_SOURCE: Final = (
    "connectionString",
    "bearerTokenFile",
    "caFile",
    "stalenessPeriod",
    "usageQueryTimeout",
    "queryResolution",
    *(f"{name}{of}Metric" for name in _METRICS.values() for of in ("Allocation", "Capacity")),
)


def queue_usage(found: Found) -> QueueUsage | None:
    """The rules about past use; None if it does not count. Raises ConfigError."""
    if _SECTION not in found or not found.get(f"{_SECTION}.enabled", True):
        return None
    usual, type_ = QueueUsage(), found.get(f"{_SECTION}.windowType", _SLIDING)
    for of, key in _NEEDED.items():
        if type_ == of and f"{_SECTION}.{key}" not in found:
            raise found.places[f"{_SECTION}.windowType"].error(f"{key} beside it")
        if type_ != of and f"{_SECTION}.{key}" in found:
            found.note(found.places[f"{_SECTION}.{key}"], f"only windowType {of} reads it")
    return QueueUsage(
        weight=found.get(f"{_SECTION}.kValue", usual.weight),
        window_s=found.get(f"{_SECTION}.windowSize", usual.window_s),
        half_life_s=found.get(f"{_SECTION}.halfLifePeriod", usual.half_life_s),
        interval_s=found.get(f"{_SECTION}.fetchInterval", usual.interval_s),
        tumbles_from_s=found.get(f"{_SECTION}.{_NEEDED['tumbling']}") if type_ == "tumbling" else None,
        cron=found.get(f"{_SECTION}.{_NEEDED['cron']}") if type_ == "cron" else None,
        stale_s=found.get(f"{_SECTION}.stalenessPeriod", usual.stale_s),
    )


def usage_source(found: Found) -> UsageSource | None:
    """The Prometheus that has past use; None if the controller's own records alone count. Raises ConfigError."""
    asked = f"{_SECTION}.clientType"
    if asked not in found:
        for path in (f"{_SECTION}.{key}" for key in _OF_SOURCE):
            if path in found:
                found.note(found.places[path], "only clientType prometheus reads it")
        return None
    if not found.get(f"{_SECTION}.enabled", True):
        return None
    url = found.get(f"{_SECTION}.connectionString")
    if url is None:
        raise found.places[asked].error("connectionString beside it, the URL to ask")
    _check_staleness(found)
    token_file = found.get(f"{_SECTION}.bearerTokenFile")
    if token_file is not None and urlsplit(url).username is not None:
        raise found.places[f"{_SECTION}.bearerTokenFile"].error("none beside a user in connectionString")
    usual = UsageSource(url=url)
    return UsageSource(
        url=url,
        token_file=token_file,
        ca_file=found.get(f"{_SECTION}.caFile"),
        timeout_s=found.get(f"{_SECTION}.usageQueryTimeout", usual.timeout_s),
        resolution_s=found.get(f"{_SECTION}.queryResolution", usual.resolution_s),
        metrics={resource: _metrics(found, resource, name) for resource, name in _METRICS.items()},
    )


def _check_staleness(found: Found) -> None:
    """Checks that an answer counts until the next one comes: otherwise the amounts would change to and fro. Raises
    ConfigError.
    """
    interval, staleness = f"{_SECTION}.fetchInterval", f"{_SECTION}.stalenessPeriod"
    usual = QueueUsage()
    interval_s, stale_s = found.get(interval, usual.interval_s), found.get(staleness, usual.stale_s)
    if stale_s > interval_s:
        return
    if staleness in found:
        raise found.places[staleness].error(f"more than fetchInterval, {interval_s:g} seconds")
    raise found.places[interval].error(f"less than stalenessPeriod, {stale_s:g} seconds where the file says none")


def _metrics(found: Found, resource: ResourceName, name: str) -> UsageMetrics:
    return UsageMetrics(
        allocated=found.get(f"{_SECTION}.{name}AllocationMetric", f'tessera_queue_allocated{{resource="{resource}"}}'),
        capacity=found.get(f"{_SECTION}.{name}CapacityMetric", f'tessera_queue_capacity{{resource="{resource}"}}'),
    )
