"""Turns a controller's configuration into the settings that the judge takes."""

from collections.abc import Iterable
from typing import Final

from controller.cluster.config.load import parse
from controller.cluster.config.settings import NAMESPACE_NAME_LABEL, ControllerConfig
from controller.scheduler.model.config import BackfillPolicy
from history.settings import Settings
from inventory.api.names import GPU_COMPUTE_SLICES, GPU_MEMORY_GIB
from yamlfile import ConfigError

UNKNOWN: Final = "the controller's configuration: is not there or may not be read, what it promises is not asked of it"
UNREAD: Final = "the controller's configuration: cannot be understood, what it promises is not asked of it"


def promises(text: str | None, own_namespace: str, namespaces: Iterable[dict[str, str]]) -> tuple[Settings, list[str]]:
    """The judge's settings, and the lines about settings that are not known. ``namespaces``: the labels of each."""
    if text is None:
        return Settings(unmanaged=("kube-system", own_namespace)), [UNKNOWN]
    try:
        return _settings(parse(text), own_namespace, namespaces), []
    except ConfigError:
        return Settings(unmanaged=("kube-system", own_namespace)), [UNREAD]


def _settings(config: ControllerConfig, own_namespace: str, namespaces: Iterable[dict[str, str]]) -> Settings:
    engine, selector = config.engine, config.namespace_selector(own_namespace)
    extensions, rules = engine.extensions, engine.request_rules
    names = [labels.get(NAMESPACE_NAME_LABEL, "") for labels in namespaces if not selector.matches(labels)]
    counted = [each for each in engine.claim_rules.mappings if not each.sources]
    minimum, moves = extensions.minimum_runtime, extensions.consolidation
    return Settings(
        unmanaged=tuple(sorted({"kube-system", own_namespace, *names})),
        queues_pods="pod" in config.integrations.frameworks,
        device_classes={name: str(each.resource) for each in counted for name in each.classes},
        uncounted=(*rules.rewritten, GPU_MEMORY_GIB, GPU_COMPUTE_SLICES),
        backfill=extensions.backfill is not BackfillPolicy.NONE,
        minimum_runtime_s=minimum.default_s if minimum is not None else 0.0,
        minimum_runtime_by_class=dict(minimum.by_priority_class) if minimum is not None else {},
        move_after_s=moves.minimum_runtime_s if moves is not None else 0.0,
        moves_per_hour=moves.moves_per_hour if moves is not None else None,
    )
