"""The chart's policy of annotations tells what the controller would count as not written, and nothing else."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from controller.cluster.config.settings import OnGpuFailure
from controller.scheduler.flavors.spot import floor_problem, spot_problem
from controller.scheduler.model.toldtimes import duration_s
from controller.scheduler.quota.prices import BY_PRICE, price_problem
from inventory.api.names import (
    CHECKPOINT_GRACE,
    CHECKPOINT_INTERVAL,
    CHECKPOINT_WAIT,
    FLAVOR_ORDER,
    HOURLY_PRICE,
    ON_DEMAND_FLOOR,
    ON_GPU_FAILURE,
    PREFIX,
    PROVISION_TIMEOUT,
    RESTART_COST,
    RUNTIME,
    SPOT,
    YIELD,
)
from tests.support.controller.celpolicies import evaluated

TEMPLATE = Path(__file__).parents[2] / "charts" / "tessera" / "templates" / "annotation-words-policy.yaml"
DURATIONS = (RUNTIME, CHECKPOINT_INTERVAL, CHECKPOINT_GRACE, CHECKPOINT_WAIT, RESTART_COST, PROVISION_TIMEOUT)
WORDS = (
    "",
    "never",
    "Never",
    "allowed",
    "preferred",
    "prefered",
    "hourly-price",
    "when-checkpointed",
    "evict",
    "notify",
)


def table() -> dict[str, dict[str, str]]:
    """The pattern of each annotation's values, and the sentence that says what is expected."""
    text = TEMPLATE.read_text().partition("{{- if .Values")[0]
    fits, expected = re.findall(r'"(?:fits|expected)" "([^"]*)"', text)
    (names,) = re.findall(r"range list ([^}]*)}}", text)
    rows: dict[str, dict[str, str]] = yaml.safe_load(re.sub(r"(?m)^.*\{\{.*\n?", "", text))
    rows |= {name: {"fits": fits, "expected": expected} for name in re.findall(r'"([^"]+)"', names)}
    return {PREFIX + name: row for name, row in rows.items()}


def fits(annotation: str, word: str) -> bool:
    return re.search(table()[annotation]["fits"], word, re.ASCII) is not None


def test_each_annotation_is_one_that_tessera_reads() -> None:
    others = {SPOT, ON_DEMAND_FLOOR, HOURLY_PRICE, FLAVOR_ORDER, YIELD, ON_GPU_FAILURE}
    assert table().keys() == {*others, *DURATIONS}


@pytest.mark.parametrize("word", WORDS)
def test_words_fit_where_the_controller_knows_them(word: str) -> None:
    assert fits(SPOT, word) == (spot_problem({SPOT: word}) == "")
    assert fits(FLAVOR_ORDER, word) == (word == BY_PRICE)
    assert fits(YIELD, word) == (word == "when-checkpointed")
    assert fits(ON_GPU_FAILURE, word) == (word in set(OnGpuFailure))


@given(st.text(alphabet="0123456789.%", max_size=8))
def test_floors_and_prices_fit_where_the_controller_reads_them(text: str) -> None:
    assert fits(ON_DEMAND_FLOOR, text) == (floor_problem({ON_DEMAND_FLOOR: text}) == "")
    assert fits(HOURLY_PRICE, text) == (price_problem({HOURLY_PRICE: text}) == "")


@given(st.text(alphabet="0159.hmsunµ -+", max_size=8) | st.sampled_from(["90s", "1h30m", "1.5h", "0", "15 m", "1d"]))
def test_durations_fit_where_the_controller_reads_them(text: str) -> None:
    assert {fits(annotation, text) for annotation in DURATIONS} == {duration_s(text) is not None}


def told(now: dict[str, Any], before: dict[str, Any] | None = None) -> str:
    """The warning; empty for none."""
    text = TEMPLATE.read_text().partition("# An annotation that cannot be read")[2].partition("\n---\n")[0]
    spec = yaml.safe_load(re.sub(r"(?m)^ *\{\{.*\n", "", "#" + text).replace("{{ $name }}", "n"))["spec"]
    rows = table()
    given: dict[str, Any] = {"object": now, "oldObject": before, "variables": {}}
    if not all(evaluated(condition["expression"], given) for condition in spec["matchConditions"]):
        return ""
    for each in spec["variables"]:
        if each["name"] in ("fits", "expected"):
            given["variables"][each["name"]] = {key: row[each["name"]] for key, row in rows.items()}
        else:
            given["variables"][each["name"]] = evaluated(each["expression"], given)
    (rule,) = spec["validations"]
    return "" if evaluated(rule["expression"], given) else str(evaluated(rule["messageExpression"], given))


def annotated(own: dict[str, str] | None = None, pods: dict[str, str] | None = None) -> dict[str, Any]:
    metadata = {} if own is None else {"annotations": own}
    return {"metadata": metadata, "spec": {"template": {"metadata": {} if pods is None else {"annotations": pods}}}}


def test_each_wrong_annotation_of_an_object_and_of_its_pods_is_named() -> None:
    assert told(annotated({SPOT: "nevr", RUNTIME: "1h", "site/spot": "x"}, {CHECKPOINT_GRACE: "1 minute" * 20})) == (
        'metadata.annotations[tessera.dev/spot]: found "nevr", expected never, allowed or preferred; '
        f'spec.template.metadata.annotations[tessera.dev/checkpoint-grace]: found "{("1 minute" * 20)[:63]}", '
        "expected a duration such as 90s or 1h30m; until then it counts as not written"
    )
    assert told(annotated({SPOT: "never"}, {CHECKPOINT_GRACE: "60s"})) == ""


def test_nothing_is_told_of_what_somebody_else_writes_and_of_what_stays() -> None:
    wrong = annotated({SPOT: "nevr"})
    owned = annotated({SPOT: "nevr"})
    owned["metadata"]["ownerReferences"] = [{"controller": True}]
    assert told(wrong, annotated())
    assert told(wrong, {**wrong, "status": {}}) == ""
    assert told(owned) == ""
    assert told({"metadata": {}}) == ""
    assert told({"metadata": {"annotations": {SPOT: "nevr"}}})
