"""The bill of materials: what is locked and kept, with hashes and licences, in the published form."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest
from referencing import Registry, Resource

from hack.supply.__main__ import document, kept, packages
from hack.supply.bill import bill
from hack.supply.locks import Package, Use, merge, parse

ROOT: Final = Path(__file__).parents[3]
SCHEMAS: Final = ROOT / "tests" / "support" / "supply" / "cyclonedx-python-lib"


@pytest.fixture(scope="module")
def made() -> Mapping[str, Any]:
    return document()


def pinned(name: str) -> set[tuple[str, str]]:
    text = (ROOT / "requirements" / name).read_text()
    return set(re.findall(r"^([a-z0-9._-]+)==(\S+)", text, re.MULTILINE))


def test_it_is_cyclonedx_as_published(made: Mapping[str, Any]) -> None:
    schemas = {path.name: json.loads(path.read_text()) for path in SCHEMAS.glob("*.json")}
    known = {f"http://cyclonedx.org/schema/{name}": Resource.from_contents(each) for name, each in schemas.items()}
    checker = jsonschema.Draft7Validator(
        schemas["bom-1.5.SNAPSHOT.schema.json"], registry=Registry().with_resources(known.items())
    )
    assert [error.message for error in checker.iter_errors(made)] == []
    assert list(checker.iter_errors({**made, "components": [{"type": "library"}]})), "the schema refuses what is wrong"


def test_it_names_exactly_what_is_locked_and_kept(made: Mapping[str, Any]) -> None:
    files = {(each.name, each.version) for each, _ in kept()}
    found = {(each["name"], each["version"]): each for each in made["components"]}
    assert set(found) == pinned("run.txt") | pinned("dev.txt") | files
    assert {"lit-html", "axe-core"} <= {name for name, _ in files}
    image = {key for key, each in found.items() if each["scope"] == "required"}
    assert image == pinned("run.txt") | {key for key in files if key[0] == "lit-html"}


def test_its_hashes_are_those_of_the_locks_and_each_has_a_licence(made: Mapping[str, Any]) -> None:
    text = (ROOT / "requirements" / "dev.txt").read_text() + (ROOT / "requirements" / "run.txt").read_text()
    locked = set(re.findall(r"sha256:([0-9a-f]{64})", text))
    files = {digest for each, _ in kept() for digest in each.sha256}
    assert {each["content"] for one in made["components"] for each in one["hashes"]} == locked | files
    assert all(one["licenses"] for one in made["components"])


def test_the_same_locks_give_the_same_bytes_and_another_version_another_number() -> None:
    first = Package("a", "1", ("0" * 64,), ("tessera",), Use.IMAGE)
    second = Package("a", "2", ("0" * 64,), ("tessera",), Use.IMAGE)
    said = {"tessera": "Apache-2.0", "a": "MIT OR Apache-2.0"}
    assert bill("tessera", "1", [first], said) == bill("tessera", "1", [first], said)
    numbers = {bill("tessera", "1", [each], said)["serialNumber"] for each in (first, second)}
    assert len(numbers) == 2


def test_the_project_depends_on_what_its_image_holds_and_not_on_tools(made: Mapping[str, Any]) -> None:
    (needed,) = (each["dependsOn"] for each in made["dependencies"] if each["ref"] == "tessera")
    names = {re.split("[/@]", each)[1] for each in needed}
    assert {"aiohttp", "lit-html"} <= names
    assert not names & {"pytest", "axe-core"}


def test_a_package_that_both_locks_hold_has_one_version() -> None:
    image = parse("a==1 \\\n    --hash=sha256:" + "0" * 64, Use.IMAGE)
    tools = parse("a==2 \\\n    --hash=sha256:" + "0" * 64, Use.DEVELOPMENT)
    with pytest.raises(ValueError, match="a: found 1 in the image's lock and 2"):
        merge(image, tools)
    assert len(packages()) == len(pinned("dev.txt"))


@pytest.mark.parametrize("line", ["a>=1", "    --hash=md5:0", "--index-url=x"])
def test_a_line_that_is_not_locked_is_named(line: str) -> None:
    with pytest.raises(ValueError, match="line 2: found"):
        parse(f"b==1\n{line}\n", Use.IMAGE)
