"""Each sentence of the threat model names a test that exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/threat-model.md").read_text()
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def test_each_sentence_names_a_test_and_each_test_that_is_named_exists() -> None:
    sentences = [line for line in PAGE.splitlines() if line.startswith("- ")]
    assert len(sentences) >= 20
    for sentence in sentences:
        found = NAMED.search(sentence)
        assert found is not None, f"no test: {sentence}"
        text = (ROOT / found[1]).read_text()
        assert re.search(rf"def {found[2]}\(", text), f"{found[1]} has no {found[2]}"


def test_the_five_that_are_hostile_stand_there() -> None:
    sections = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
    assert [section.partition("\n")[0] for section in sections] == [
        "A pod that forges `tessera.dev/devices`",
        "A user with rights in one namespace",
        "A stolen agent token",
        "A compromised node",
        "A malicious image on a shared GPU",
    ]
    assert all(section.count("\n- ") >= 6 for section in sections), "too little is said of one of them"
