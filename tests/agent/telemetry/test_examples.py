"""The examples about metrics say what they mean: see also tests/e2e/metrics/test_metrics.py."""

from pathlib import Path

import pytest

from agent.config.load import load
from agent.telemetry.collectors import read
from agent.telemetry.podlabels import PodLabelChoice
from yamlfile import ConfigError

EXAMPLES = Path(__file__).parents[3] / "examples/metrics"


def test_the_collectors_file_is_read_in_full() -> None:
    found = read(EXAMPLES / "counters.csv")
    assert found.missing == ()
    assert len(found.series) == 10
    assert found.labels == ("DCGM_FI_DRIVER_VERSION",)


def test_the_config_file_sets_what_it_names() -> None:
    found = load(EXAMPLES / "agent.yaml", {}, {"--node-name": "node-1"})
    assert found.warnings == ()
    metrics = found.settings.metrics
    assert (metrics.interval_s, metrics.hostname_label.value) == (30, "hostname")
    assert metrics.collectors == Path("/etc/tessera/counters.csv")
    assert (metrics.xid_errors.value, metrics.pod_uid, metrics.pod_labels) == ("last", True, True)
    assert [pattern.pattern for pattern in PodLabelChoice.of(metrics).allowed] == ["^team$", r"^app\."]


@pytest.mark.parametrize(("text", "seconds"), [("15", 15), ("15s", 15), ("1m30s", 90), ("2.5", 2.5), ("1h", 3600)])
def test_an_interval_is_a_duration_or_seconds(text: str, seconds: float) -> None:
    assert load(None, {}, {"--metrics-interval": text}).settings.metrics.interval_s == seconds


@pytest.mark.parametrize("text", ["0", "0.5s", "2h", "often", "-5", "1e3", "nan", "1.2.3", ""])
def test_another_interval_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--metrics-interval: found .*, expected 1s to 1h, or a number of seconds"):
        load(None, {}, {"--metrics-interval": text})


def test_the_peers_variable_names_the_collectors_file() -> None:
    settings = load(None, {"DCGM_EXPORTER_COLLECTORS": "/etc/dcgm-exporter/default-counters.csv"}, {}).settings
    assert settings.metrics.collectors == Path("/etc/dcgm-exporter/default-counters.csv")


def test_processes_are_looked_up_where_the_gpus_programs_run() -> None:
    def root(**flags: str) -> str:
        return str(
            load(
                None, {}, {f"--{name.replace('_', '-')}": value for name, value in flags.items()}
            ).settings.process_root
        )

    assert root() == "/proc"
    assert root(proc_root="/recorded") == "/recorded"
    assert root(proc_root="/simulated", simulate="/fleet.yaml") == "/proc"
    assert root(proc_root="/recorded", pid_root="/host") == "/host"
