"""mig-parted's file as it is, and the label that chooses from it."""

import errno
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from agent.config.settings import MigSettings
from agent.mig.choice import PartedChoice
from agent.mig.outcomes import MigState, MigStatus, Wish
from agent.mig.parted import PartedEntry, missing, parse, wishes
from agent.words import mig as words
from inventory.devices import Gpu, GpuUuid
from inventory.layout.entries import GpuMode, Mig, WhenBusy, Whole
from tests.agent.answers import rows
from tests.support.inventory.builders import gpu, uuid
from yamlfile import ConfigError

A100, H100 = 0x20B210DE, 0x233010DE

FILE = """
version: v1
mig-configs:
  all-disabled:
  - devices: all
    mig-enabled: false
  all-enabled:
  - devices: all
    mig-enabled: true
    mig-devices: {}
  all-1g.10gb:
  - device-filter: ["0x20B210DE", 0x233010DE]
    devices: all
    mig-enabled: true
    mig-devices:
      "1g.10gb": 7
  custom:
  - device-filter: 0x20B210DE
    devices: [0, 1]
    mig-enabled: true
    mig-devices: {"1g.10gb+me": 1, "1c.3g.40gb": 2}
  - devices: [1]
    mig-enabled: false
  - devices: [7]
    mig-enabled: true
    mig-devices: {}
"""


def machine() -> tuple[Gpu, ...]:
    """Two A100, one H100, and a board without MIG."""
    a100, h100 = (A100, 0x146310DE, True), (H100, 0x16C010DE, True)
    return tuple(
        replace(gpu(index), pci_device_id=board, pci_subsystem_id=subsystem, mig_capable=capable)
        for index, (board, subsystem, capable) in enumerate((a100, a100, h100, (0x1EB810DE, 0x12A210DE, False)))
    )


def by_index(found: Mapping[GpuUuid, Wish]) -> dict[int, tuple[str, ...] | None]:
    return {one.index: found[one.uuid].profiles for one in machine() if one.uuid in found}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("all-disabled", {0: None, 1: None, 2: None}),
        ("all-enabled", {0: (), 1: (), 2: ()}),
        ("all-1g.10gb", dict.fromkeys((0, 1, 2), ("1g.10gb",) * 7)),
        ("custom", {0: ("1g.10gb+me", "1c.3g.40gb", "1c.3g.40gb"), 1: None}),
    ],
)
def test_a_configuration_means_these_gpus(name: str, expected: dict[int, tuple[str, ...] | None]) -> None:
    entries = parse(FILE, "config.yaml").configurations[name]
    assert by_index(wishes(entries, machine(), WhenBusy.WAIT)) == expected
    assert {wish.when_busy for wish in wishes(entries, machine(), WhenBusy.WAIT).values()} == {WhenBusy.WAIT}


def test_indexes_that_are_not_there_are_known() -> None:
    assert missing(parse(FILE, "f").configurations["custom"], machine()) == (7,)
    assert missing(parse(FILE, "f").configurations["all-enabled"], machine()) == ()


def test_mig_asked_by_index_of_a_board_without_it_is_a_wish_to_be_refused() -> None:
    entry = PartedEntry(enabled=True, indexes=(3,))
    assert by_index(wishes([entry], machine(), WhenBusy.REFUSE)) == {3: ()}
    assert by_index(wishes([replace(entry, enabled=False)], machine(), WhenBusy.REFUSE)) == {}


def entry(keys: str) -> str:
    return f"version: v1\nmig-configs: {{a: [{{{keys}}}]}}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mig-configs: {}", "f:1: found a section, expected version: v1"),
        ("version: v2\nmig-configs: {}", "f:1: version: found 'v2', expected version: v1"),
        ("version: v1", "expected the key mig-configs"),
        (entry("devices: all"), "f:2: mig-configs.a[0]: found none, expected the key mig-enabled"),
        (entry("devices: some, mig-enabled: true"), "expected all, or a list of GPU indexes"),
        (entry("devices: all, mig-enabled: true, mig-device: {}"), "did you mean mig-devices?"),
        (entry("devices: all, mig-enabled: true, mig-devices: {big: 1}"), "expected a MIG profile"),
        (entry("devices: all, mig-enabled: false, mig-devices: {1g.5gb: 1}"), "no instances"),
        (entry("devices: all, mig-enabled: true, device-filter: [[A100]]"), "such as 0x233010DE"),
        (entry("<<: [3], devices: all, mig-enabled: true"), "f:2: <<: found a list, expected a section or a list of"),
    ],
)
def test_a_mistake_is_one_line_with_its_place(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as wrong:
        parse(text, "f")
    assert said in str(wrong.value)
    assert "\n" not in str(wrong.value)


@pytest.mark.parametrize("row", rows("mig-parted"), ids=lambda row: row["name"])
def test_a_file_is_read_as_mig_parted_reads_it(row: dict[str, Any]) -> None:
    text = row.get("text") or json.dumps(row["file"])
    if "means" not in row:
        with pytest.raises(ConfigError):
            parse(text, "f")
        return
    means = {index: None if names is None else tuple(names) for index, names in row["means"].items()}
    assert by_index(wishes(parse(text, "f").configurations["c"], machine(), WhenBusy.WAIT)) == means


def test_a_filter_that_means_no_board_is_said() -> None:
    read = parse(entry("devices: all, mig-enabled: true, mig-devices: {}, device-filter: [233010DE, 0x233010DE]"), "f")
    (warning,) = read.warnings
    assert warning.startswith("f:2: mig-configs.a[0].device-filter[0]: found '233010DE', expected a PCI device id")
    assert warning.endswith("no GPU is meant")


def test_an_attribute_left_empty_is_passed_over() -> None:
    (one,) = parse(entry("devices: all, mig-enabled: true, mig-devices: {'1g.10gb+me,': 1}"), "f").configurations["a"]
    assert one.profiles == ("1g.10gb+me",)


# The label


@pytest.fixture
def choice(tmp_path: Path) -> PartedChoice:
    (tmp_path / "config.yaml").write_text(FILE)
    made = PartedChoice(MigSettings(config_file=tmp_path / "config.yaml"))
    assert made.reread()
    assert not made.reread()
    return made


def statuses(choice: PartedChoice, *states: MigState) -> dict[GpuUuid, MigStatus]:
    gpus = choice.wishes(machine(), {})
    return {uuid: MigStatus(uuid, 0, "", state, "", 0.0) for uuid, state in zip(gpus, states, strict=False)}


@pytest.mark.parametrize(
    ("states", "answer"),
    [
        ([MigState.APPLIED] * 3, "success"),
        ([MigState.APPLIED] * 2, "pending"),
        ([MigState.APPLIED, MigState.WAITING, MigState.APPLIED], "pending"),
        ([MigState.APPLIED, MigState.WAITING, MigState.REFUSED], "failed"),
        ([MigState.FAILED], "failed"),
    ],
)
def test_the_answer_tells_what_became_of_all_its_gpus(
    choice: PartedChoice, states: list[MigState], answer: str
) -> None:
    choice.label = "all-1g.10gb"
    assert choice.answer(statuses(choice, *states)) == answer


def test_without_a_label_nothing_is_wished_and_nothing_answered(choice: PartedChoice) -> None:
    assert (choice.wishes(machine(), {}), choice.answer({}), choice.problems) == ({}, None, ())


def test_an_unknown_name_is_answered_with_those_there_are(choice: PartedChoice) -> None:
    choice.label = "all-9g"
    assert choice.wishes(machine(), {}) == {}
    assert choice.answer({}) == "failed"
    assert choice.problems == (
        "nvidia.com/mig.config: found all-9g, expected one of all-1g.10gb, all-disabled, all-enabled, custom",
    )


def test_a_broken_file_is_said_and_a_mended_one_is_read(choice: PartedChoice) -> None:
    path = choice.settings.config_file
    assert path is not None
    choice.label = "all-enabled"
    path.write_text("version: v1\nmig-configs: [1]\n")
    assert choice.reread()
    assert choice.wishes(machine(), {}) == {}
    assert str(path) in choice.problems[0]
    assert choice.answer({}) == "failed"
    path.with_name("new").write_text(FILE)
    path.with_name("new").replace(path)
    assert choice.reread()
    assert len(choice.wishes(machine(), {})) == 3
    assert choice.problems == ()


def test_a_filter_that_means_no_board_is_no_failure(choice: PartedChoice, caplog: pytest.LogCaptureFixture) -> None:
    path = choice.settings.config_file
    assert path is not None
    path.with_name("new").write_text(entry("devices: all, mig-enabled: true, mig-devices: {}, device-filter: 233010DE"))
    path.with_name("new").replace(path)
    assert choice.reread()
    choice.label = "a"
    assert choice.wishes(machine(), {}) == {}
    assert (choice.problems, choice.answer({})) == ((), "success")
    assert [record.getMessage() for record in caplog.records] == ["mig config"]


def test_what_a_layout_names_is_the_layouts_and_a_difference_is_said(choice: PartedChoice) -> None:
    first, second, third, _ = machine()
    modes: dict[GpuUuid, GpuMode] = {first.uuid: Mig(("1g.10gb",) * 7), second.uuid: Whole()}
    choice.label = "all-1g.10gb"
    assert list(choice.wishes(machine(), modes)) == [third.uuid]
    assert choice.problems == (words.layout_goes_first("nvidia.com/mig.config", "all-1g.10gb", 1),)
    done = {third.uuid: MigStatus(third.uuid, 2, "", MigState.APPLIED, "", 0.0)}
    assert choice.answer(done) == "failed"
    choice.label = "all-disabled"
    choice.wishes(machine(), {second.uuid: Whole()})
    assert not choice.problems


def test_a_file_that_cannot_be_read_for_a_moment_keeps_what_it_said_and_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "configs.yaml"
    text = "version: v1\nmig-configs:\n  {}: [{{devices: all, mig-enabled: true, mig-devices: {{1g.5gb: 1}}}}]\n"
    path.write_text(text.format("old"))
    choice = PartedChoice(MigSettings(config_file=path))
    choice.label = "old"
    assert choice.reread()
    path.write_text(text.format("old-and-new"))
    with monkeypatch.context() as patch:

        def refused(*_: object, **__: object) -> object:
            raise OSError(errno.EMFILE, "Too many open files")

        patch.setattr(Path, "open", refused)
        assert not choice.reread(), "nothing changed"
    assert choice.wishes((gpu(0),), {}).keys() == {uuid(0)}
    assert choice.reread(), "it is read as soon as it can be"
    choice.wishes((gpu(0),), {})
    assert "old-and-new" in choice.problems[0]
