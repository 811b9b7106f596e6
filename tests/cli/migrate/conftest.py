"""What tests of the migration share: a plan of texts, and whether values fit the chart."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.cli.conftest import Run

CHART = Path(__file__).parents[3] / "charts" / "tessera"
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
SENTENCES = yaml.safe_load((CHART / "files" / "sentences.yaml").read_text())

Answer = Callable[..., dict[str, Any]]


def fits_the_chart(values: dict[str, Any]) -> None:
    jsonschema.validate(values, SCHEMA)
    for rule in SENTENCES:
        found: list[Any] = [values]
        for part in rule["value"].split("."):
            found = [each[part] for each in found if isinstance(each, dict) and part in each]
        for each in found:
            assert re.search(rule["pattern"], each), (rule, each)


@pytest.fixture
def migrated(run: Run, tmp_path: Path) -> Answer:
    """The plan of files with these texts, by name, and further words of the command line; its values fit the chart."""

    def answer(*words: str, **texts: str) -> dict[str, Any]:
        files = []
        for name, text in texts.items():
            file = tmp_path / name.replace("__", ".")
            file.write_text(text)
            files.append(str(file))
        done = run("migrate", *files, *words, "-o", "json")
        assert done.exit_code == 0, done.output
        found: dict[str, Any] = json.loads(done.stdout)
        assert set(found) == {"values", "steps", "lost", "kept"}
        assert all(set(each) == {"do", "command", "undo"} and all(each.values()) for each in found["steps"])
        assert all(set(each) == {"what", "why"} and all(each.values()) for each in [*found["lost"], *found["kept"]])
        fits_the_chart(found["values"])
        return found

    return answer
