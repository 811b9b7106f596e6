"""examples/configs/remediation.yaml is what its first lines say."""

from pathlib import Path

from agent.config.load import load
from agent.health.remediation import Remediation, ResetMode

EXAMPLE = Path(__file__).parents[3] / "examples/configs/remediation.yaml"


def test_the_example_resets_a_gpu_that_nobody_has_and_retires_one_that_fails_five_times_a_day() -> None:
    found = load(EXAMPLE, {}, {})
    assert found.warnings == ()
    assert found.settings.remediation == Remediation(
        reset=ResetMode.WHEN_FREE, attempts=2, retire_faults=5, retire_within_s=86400.0
    )
