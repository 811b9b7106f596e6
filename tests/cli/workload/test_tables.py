"""Lists of workloads on terminals."""

from datetime import UTC, datetime

import msgspec
import pytest

from cli.workload.rows import row
from cli.workload.tables import show_list
from controller.objects.meta import OwnerReference
from tests.support.cli.shell import terminal
from tests.support.engine.world import workload


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_name_of_the_job_stays_on_a_narrow_terminal(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in terminal(width).items():
        monkeypatch.setenv(name, value)
    given = workload("job-bert-large-uncased-4f1c2", "research-and-development")
    owner = OwnerReference(api_version="batch/v1", kind="Job", name="bert-large-uncased", uid="u", controller=True)
    given = msgspec.structs.replace(given, metadata=msgspec.structs.replace(given.metadata, owner_references=(owner,)))
    show_list([row(given, {}, {}, datetime(2026, 1, 1, tzinfo=UTC))], everywhere=False, wide=False)
    shown = capsys.readouterr().out
    assert "bert-large-uncased" in shown.replace("job-bert-large-uncased-4f1c2", "")
