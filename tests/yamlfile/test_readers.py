"""Every file that a user writes is told to be no YAML by one sentence, whoever reads it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from agent.config.load import load as load_agent
from agent.mig import parted
from cli.layout.command import _read as read_layout
from cli.manifests import read_documents
from controller.cluster.config.load import load as load_controller
from controller.insight.simulation.documents import documents
from kube.kubeconfig import contexts_of, from_kubeconfig
from simulator.fleet.fleetfile import load_fleet
from yamlfile import read_text

READERS: dict[str, Callable[[Path], object]] = {
    "the agent's configuration": lambda file: load_agent(file, {}, {}),
    "mig-parted's configurations": lambda file: parted.parse(read_text(file), str(file)),
    "the controller's configuration": load_controller,
    "a layout": read_layout,
    "manifests": lambda file: read_documents([file]),
    "a fleet": load_fleet,
    "a kubeconfig": from_kubeconfig,
    "the contexts of a kubeconfig": lambda file: contexts_of([file]),
}

BROKEN = {
    "a: [": "1: column 5: not valid YAML: found the end of the text, expected a value, or the closing ] or }. "
    "Correct it",
    "a:\n\tb: 1": "2: column 1: not valid YAML: found a tab before the text, expected spaces. Indent with spaces",
    "a:\n    b: 1\n  c: 2": '3: column 3: not valid YAML: found "c:", expected a key of the keys that begin in line 1, '
    "column 1. Indent it as they are",
    "a: b: c": "1: column 5: not valid YAML: found a colon within a value, expected one key a line, or the value in "
    "quotes. Correct the indentation, or put the value in quotes",
    "a: 1\nb: \x01": "2: column 4: not valid YAML: found the character 0x1, expected text. Take it out",
    "a: 1\nb: *c": "2: column 4: not valid YAML: found the alias *c, expected an anchor before it. "
    "Write the value in its place",
    '{"a": [1, }': '1: column 11: not valid YAML: found "}", expected a value, or the closing ] or }. Correct it',
    "a: 'b": "1: column 6: not valid YAML: found the end of the text, expected the closing quote of the text in "
    "line 1, column 4. Close it",
}


def refusal(reader: Callable[[Path], object], file: Path) -> str:
    with pytest.raises(Exception, match=r"expected") as caught:
        reader(file)
    return str(caught.value)


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@pytest.mark.parametrize("text", BROKEN)
def test_all_readers_tell_broken_yaml_in_one_sentence(
    tmp_path: Path, text: str, reader: Callable[[Path], object]
) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(text)
    assert refusal(reader, file) == f"{file}:{BROKEN[text]}"


@pytest.mark.parametrize("text", BROKEN)
def test_a_manifest_pasted_into_the_page_is_told_so_as_well(text: str) -> None:
    with pytest.raises(Exception, match=r"expected") as caught:
        documents(text, "manifest")
    assert str(caught.value) == f"manifest:{BROKEN[text]}"


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_all_readers_tell_other_encodings_in_one_sentence(tmp_path: Path, reader: Callable[[Path], object]) -> None:
    file = tmp_path / "f.yaml"
    file.write_bytes(b"a: 1\nb: \xff\n")
    assert refusal(reader, file) == f"{file}:2: found bytes that are no UTF-8, expected UTF-8 text"


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_all_readers_tell_a_file_that_is_not_there_alike(tmp_path: Path, reader: Callable[[Path], object]) -> None:
    file = tmp_path / "f.yaml"
    told = refusal(reader, file)
    assert told.startswith(f"{file}: found no such file or directory, expected a ")
    assert told.endswith("file")


NUMBER = "n: 1\nlong: " + "9" * 5000


@pytest.mark.parametrize("name", ["manifests", "a fleet", "a kubeconfig"])
def test_a_number_that_cannot_be_held_is_told_with_its_place(tmp_path: Path, name: str) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(NUMBER)
    assert f'{file}:2: column 7: not valid YAML: found "{"9" * 40}" (Exceeds' in refusal(READERS[name], file)
