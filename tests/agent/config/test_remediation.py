"""The section remediation."""

from pathlib import Path

import pytest

from agent.config.changes import Concern, changed
from agent.config.load import load
from agent.config.settings import Settings
from agent.health.remediation import Remediation, ResetMode
from yamlfile import ConfigError


def read(tmp_path: Path, text: str) -> Settings:
    (tmp_path / "config.yaml").write_text(text)
    found = load(tmp_path / "config.yaml", {}, {})
    assert found.warnings == ()
    return found.settings


def test_nothing_is_reset_without_the_section(tmp_path: Path) -> None:
    assert read(tmp_path, "version: v1\n").remediation == Remediation(reset=ResetMode.NEVER)


def test_every_key(tmp_path: Path) -> None:
    text = (
        "remediation:\n  reset: when-free\n  attempts: 3\n  retireAfter: {faults: 4, within: 12h}\n"
        "  verify: {command: [/opt/check, --quick, --quick], timeout: 1m}\n"
    )
    assert read(tmp_path, text).remediation == Remediation(
        reset=ResetMode.WHEN_FREE,
        attempts=3,
        retire_faults=4,
        retire_within_s=43200.0,
        verify_command=("/opt/check", "--quick", "--quick"),
        verify_timeout_s=60.0,
    )


@pytest.mark.parametrize(
    ("section", "field", "found", "expected"),
    [
        ("{reset: always}", "remediation.reset", "always", "never, when-free or drain"),
        ("{attempts: 0}", "remediation.attempts", "0", "an integer from 1 to 10"),
        ("{retireAfter: {within: 5}}", "remediation.retireAfter.within", "5", "1m to 720h"),
        ("{retireAfter: 5}", "remediation.retireAfter", "5", "a section"),
        ("{verify: {command: [a, 'b,c']}}", "remediation.verify.command", "list", "without commas"),
        ("{stewards: [a, 'b,c d']}", "remediation.stewards", "list", "names of processes"),
        ("{verify: {timeout: 0s}}", "remediation.verify.timeout", "0s", "1s to 1h"),
        ("{resets: never}", "remediation.resets", "resets", "reset"),
    ],
)
def test_a_mistake_is_one_line_with_file_field_found_and_expected(
    section: str, field: str, found: str, expected: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as wrong:
        read(tmp_path, f"remediation: {section}\n")
    text = str(wrong.value)
    assert "\n" not in text
    assert all(word in text for word in ("config.yaml", field, found, expected)), text


def test_a_change_of_it_needs_no_restart(tmp_path: Path) -> None:
    before, after = read(tmp_path, "version: v1\n"), read(tmp_path, "remediation: {reset: when-free}\n")
    assert changed(before, after).concerns == {Concern.REMEDIATION}
    assert changed(before, after).restart_needed == ()
