"""What the chart's templates of policies look at, beyond what rendering them shows."""

import re
from pathlib import Path

TEMPLATES = Path(__file__).parents[2] / "charts" / "tessera" / "templates"
OF_ONE_GROUP = {"queue-policy-quotas.yaml", "serving-minimum-policy.yaml"}
"""Policies whose resources tell kinds of one name apart already."""


def test_kinds_are_told_by_their_group_and_name() -> None:
    """Two groups may have a kind Job: each is held by a field of its own."""
    alone = re.compile(r"(?<!'/' \+ )object\.kind (?:in|==|!=)")
    texts = {path.name: path.read_text() for path in sorted(TEMPLATES.iterdir()) if path.suffix in (".yaml", ".tpl")}
    found = {name for name, text in texts.items() if alone.search(text)}
    assert found - {"job-version-policy.yaml"} == OF_ONE_GROUP
    assert "object.apiVersion + ' ' + object.kind !=" in texts["job-version-policy.yaml"]
    assert "variables.kind in" in texts["_jobs.tpl"]
