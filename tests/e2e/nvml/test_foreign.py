"""``make foreign-nvml``: what a library has is found, what it lacks is named, what contradicts it is wrong."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from hack import foreignnvml
from hack.foreignnvml import Finding, Subject, Verdict, default, examine

pytestmark = pytest.mark.e2e


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Sockets' paths are short, whatever the test is called."""
    with tempfile.TemporaryDirectory(prefix="nvml-") as folder:
        yield Path(folder)


def of(found: list[Finding], area: str) -> list[tuple[str, str]]:
    return [(one.verdict.name, one.text) for one in found if one.area == area]


def verdicts(found: list[Finding]) -> dict[str, set[str]]:
    """By area."""
    said: dict[str, set[str]] = {}
    for one in found:
        said.setdefault(one.area, set()).add(one.verdict.name)
    return said


def control(subject: Subject, **files: int) -> None:
    for name, number in files.items():
        (Path(subject.environment["TESSERA_STUB_DIR"]) / name).write_text(str(number))


async def test_our_own_library_passes_and_what_it_lacks_is_named(short_folder: Path) -> None:
    found = await examine(default(short_folder), short_folder)
    assert verdicts(found) == {
        "library": {"OK", "ABSENT"},
        "discovery": {"OK"},
        "registration": {"OK"},
        "allocation": {"OK"},
        "metrics": {"OK", "ABSENT"},
        "health": {"OK"},
        "events": {"OK"},
        "reset": {"OK"},
        "end": {"OK"},
        "MIG": {"ABSENT"},
    }
    assert of(found, "events") == [("OK", "GPU 1, and no other, is out: Xid79")]
    assert of(found, "MIG") == [("ABSENT", "no GPU has it")]
    assert any("nvmlDeviceGetRemappedRows" in text for _, text in of(found, "library"))


async def test_an_event_that_another_set_is_given_takes_out_the_gpu_it_names(short_folder: Path) -> None:
    subject = default(short_folder)
    around = {**subject.environment, "TESSERA_STUB_OTHER_SET": "1"}
    found = await examine(Subject(subject.library, around, subject.trip), short_folder)
    assert of(found, "events") == [("OK", "GPU 1, and no other, is out: Xid79")]
    assert of(found, "reset") == [("NOT_TRIED", "RESET names no command: the GPU stays out")]


async def test_mig_instances_are_offered_and_allocated(short_folder: Path) -> None:
    subject = default(short_folder)
    control(subject, mig0=0, mig1=1, instances1=3)
    found = await examine(subject, short_folder)
    assert of(found, "MIG") == [("OK", "3 instances as nvidia.com/mig-1g.3gb, and one allocated")]
    assert not any(one.verdict is Verdict.WRONG for one in found), found


async def test_mig_mode_without_instances_is_told_as_that(short_folder: Path) -> None:
    subject = default(short_folder)
    control(subject, mig1=1)
    found = await examine(Subject(subject.library, subject.environment), short_folder)
    assert of(found, "MIG") == [("ABSENT", "GPUs [1] are in MIG mode and have no instances")]
    assert of(found, "events") == [("NOT_TRIED", "they are listened to; TRIP names no command that raises one")]
    assert not any(one.verdict is Verdict.WRONG for one in found), found


async def test_a_library_without_events_is_told_as_that(short_folder: Path) -> None:
    found = await examine(default(short_folder, "-DWITHOUT_EVENTS"), short_folder)
    assert of(found, "events") == [("ABSENT", "GPUs [0, 1] have no XID events: their health comes from probes alone")]
    assert not any(one.verdict is Verdict.WRONG for one in found), found


async def test_what_the_agent_finds_otherwise_than_the_library_says_is_wrong(short_folder: Path) -> None:
    found = await examine(default(short_folder, "-DSMALLER_EACH_PROCESS"), short_folder)
    ((verdict, text),) = of(found, "discovery")
    assert verdict == "WRONG"
    assert "memory_mib is" in text


async def test_an_event_that_takes_out_another_gpu_is_wrong(
    short_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreignnvml, "WAIT_S", 3.0)
    subject = default(short_folder)
    other = subject.trip.replace("{gpu}", "0")
    found = await examine(Subject(subject.library, subject.environment, other), short_folder)
    assert verdicts(found)["health"] == {"WRONG"}


async def test_two_gpus_of_one_uuid_are_wrong_before_any_agent_runs(short_folder: Path) -> None:
    found = await examine(default(short_folder, "-DTWIN_UUIDS"), short_folder)
    assert verdicts(found) == {"library": {"WRONG", "ABSENT"}}


@pytest.mark.parametrize(("content", "said"), [("no library", "file too short"), ("", "file too short")], ids=str)
def test_a_file_that_is_no_library_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, said: str
) -> None:
    (tmp_path / "lib.so").write_text(content)
    assert foreignnvml.main(["--library", str(tmp_path / "lib.so")]) == 1
    shown = capsys.readouterr().out
    assert "WRONG      library" in shown
    assert said in shown


def test_without_a_compiler_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(click.ClickException, match="apt-get install gcc"):
        default(tmp_path)
