"""The dashboards' JSON: what the source says, in one piece, of series that exist."""

import json
from typing import Any

import pytest

from hack.pages.dashboards import ALL, COLUMNS, FOLDER, rendered
from tests.support.charts.series import known, named

FILES = {path.stem: json.loads(path.read_text()) for path in FOLDER.glob("*.json")}


def test_the_files_are_what_the_source_says() -> None:
    found = {path: path.read_text() for path in FOLDER.iterdir()}
    assert found == rendered(), "stale: .venv/bin/python -m hack.pages.dashboards"


def test_there_is_one_for_each_thing_that_people_ask_about_and_each_has_its_own_uid() -> None:
    assert set(FILES) == {"fleet", "node", "gpu", "namespace", "queue"}
    assert len({one["uid"] for one in FILES.values()}) == len({one["title"] for one in FILES.values()}) == len(ALL)


@pytest.mark.parametrize("name", FILES)
def test_panels_have_ids_of_their_own_and_do_not_lie_on_each_other(name: str) -> None:
    panels = FILES[name]["panels"]
    assert len({one["id"] for one in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for one in panels:
        at = one["gridPos"]
        cells = {(at["x"] + i, at["y"] + j) for i in range(at["w"]) for j in range(at["h"])}
        assert not cells & taken
        assert at["x"] + at["w"] <= COLUMNS
        taken |= cells


@pytest.mark.parametrize("name", FILES)
def test_queries_name_series_and_variables_that_exist(name: str) -> None:
    variables: list[dict[str, Any]] = FILES[name]["templating"]["list"]
    given = {f"${one['name']}" for one in variables} | {"$__rate_interval"}
    for panel in FILES[name]["panels"]:
        for target in panel["targets"]:
            assert named(target["expr"]) <= known(usual=True), target["expr"]
            used = {
                word
                for word in target["expr"].replace('"', " ").replace("]", " ").replace("[", " ").split()
                if word[0] == "$"
            }
            assert used <= given, target["expr"]
