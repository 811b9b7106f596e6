"""Every series that exists: what the agent and the controller serve, and what the rules record."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from agent.serving.metrics import HEALTH, AgentMetrics
from agent.telemetry.fields import FIELDS
from agent.telemetry.series import OWN
from controller.cluster.metrics.table import COUNTED, READ

RULES = Path(__file__).parents[3] / "charts/tessera/files/rules.yaml"
_NAME = re.compile(r"\b(?:DCGM_|tessera|kueue_)[A-Za-z0-9_:]+")


@cache
def rules() -> list[dict[str, Any]]:
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [one for group in yaml.load(RULES.read_text(), loader)["groups"] for one in group["rules"]]


@cache
def known(*, usual: bool = False) -> frozenset[str]:
    """``usual``: of DCGM's fields only those that are exported without a collectors file."""
    agents = {f"{one.name}_total" if one.type == "counter" else one.name for one in AgentMetrics().registry.collect()}
    families = {family.name for family in (*OWN, HEALTH)} | {family.name for family in (*COUNTED, *READ)}
    records = {one["record"] for one in rules() if "record" in one}
    fields = {field.name for field in FIELDS if field.usual or not usual}
    return frozenset(agents | families | fields | records | {f"{name}_bucket" for name in agents | families})


def named(expression: str) -> set[str]:
    """The series in an expression."""
    return set(_NAME.findall(re.sub(r'"[^"]*"', '""', expression)))
