"""Claims of devices in a simulation: the page's examples, with its configuration and without."""

import re
from pathlib import Path

import yaml

from controller.config.load import default, parse
from controller.simulation.documents import Document, documents
from controller.simulation.manifests import scenario
from controller.simulation.run import simulate
from controller.simulation.timeline import SimulationResult
from tests.support.controller.manifests import GPU, told

ROOT = Path(__file__).parents[3]
QUEUED, GANG = (ROOT / "examples" / "claims" / f"{name}.yaml" for name in ("queued", "queued-gang"))
PAGE = next(
    text
    for text in re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "dra.md").read_text(), re.DOTALL)
    if "deviceClassMappings" in text
)


def read(*files: Path, without: str = "") -> list[Document]:
    found = [document for file in files for document in documents(file.read_text(), file.name)]
    return [document for document in found if document.kind != without]


def run(*files: Path, using: str = PAGE, without: str = "") -> SimulationResult:
    settings = parse(using) if using else default()
    return simulate(scenario(read(*files, without=without), settings), settings.engine, until_s=60, check=True)


def test_the_examples_of_the_page_are_counted() -> None:
    assert told(run(QUEUED)) == ["0 Admitted default/claims-queued"]
    assert told(run(QUEUED, GANG, without="Job")) == ["0 Admitted default/claims-gang"]
    both = run(QUEUED, GANG)
    assert sorted(told(both)) == ["0 Admitted default/claims-queued", "0 Pending default/claims-gang"]
    (waits,) = [entry for entry in both.timeline if entry.event == "Pending"]
    assert f"Needs 2 {GPU} of flavor claimed: 0 free, 2 more needed" in str(waits)


def test_without_a_mapping_the_class_is_named() -> None:
    (entry,) = run(QUEUED, using="").timeline
    assert "DeviceClass gpu.nvidia.com is not mapped" in str(entry)


def test_a_missing_template_is_named() -> None:
    (entry,) = run(QUEUED, without="ResourceClaimTemplate").timeline
    assert "there is no ResourceClaimTemplate default/queued-gpu" in str(entry)


def test_the_examples_ask_for_what_they_have() -> None:
    names = {each["metadata"]["name"] for each in yaml.safe_load_all(QUEUED.read_text())}
    assert {"claims", "queued-gpu", "claims-queued"} <= names
