"""Which licences are allowed, and what becomes of a package that says none of them."""

import hashlib
import json
from pathlib import Path

import pytest

from hack.supply import vendored
from hack.supply.__main__ import installed, packages, rules
from hack.supply.licences import Rules, Said, UnknownLicenceError, expression

RULES = Rules(allowed=frozenset({"MIT", "Apache-2.0"}), words={"Apache 2.0": "Apache-2.0"}, packages={"odd": "MIT"})


def test_every_locked_package_has_an_allowed_licence() -> None:
    allowed = rules()
    for each in packages():
        assert expression(each.name, installed(each), allowed)


def test_every_word_of_the_table_stands_for_a_licence_that_is_allowed() -> None:
    allowed = rules()
    assert {*allowed.words.values(), *allowed.packages.values()} <= allowed.allowed
    assert set(allowed.packages) <= {each.name for each in packages()}


@pytest.mark.parametrize(
    ("name", "said", "found"),
    [
        ("a", Said(expression="MIT"), "MIT"),
        ("a", Said(expression="GPL-3.0-only OR MIT"), "GPL-3.0-only OR MIT"),
        ("a", Said(licence="Apache 2.0"), "Apache-2.0"),
        ("a", Said(licence="the long text of it", classifiers=["Apache 2.0"]), "Apache-2.0"),
        ("odd", Said(licence="free"), "MIT"),
    ],
)
def test_a_licence_is_read_from_what_the_package_says(name: str, said: Said, found: str) -> None:
    assert expression(name, said, RULES) == found


@pytest.mark.parametrize(
    "said",
    [
        Said(),
        Said(expression="GPL-3.0-only"),
        Said(expression="MIT AND GPL-3.0-only"),
        Said(expression="(MIT OR GPL-3.0-only) AND MIT"),
        Said(licence="as beer"),
        Said(classifiers=["License :: Other"]),
    ],
    ids=str,
)
def test_an_unknown_licence_is_refused_with_the_packages_name(said: Said) -> None:
    with pytest.raises(UnknownLicenceError, match="a: its licence is"):
        expression("a", said, RULES)


def test_a_kept_file_that_was_changed_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.js").write_text("mine")
    digest = hashlib.sha256(b"theirs").hexdigest()
    told = {"package": "x", "version": "1", "licence": "MIT", "sha256": {"x.js": digest}}
    (tmp_path / "x.json").write_text(json.dumps(told))
    with pytest.raises(ValueError, match=r"x\.js: found sha256"):
        vendored.read(tmp_path / "x.json")
