"""``tessera.kai.usage``: its windows, and the Prometheus that is asked."""

from pathlib import Path

import pytest

from controller.cluster.config.load import parse
from controller.cluster.config.settings import ControllerConfig, UsageMetrics
from controller.scheduler.mirror.specs import GPU, MEMORY
from yamlfile import ConfigError

HEAD = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"


def usage(text: str) -> ControllerConfig:
    return parse(f"{HEAD}tessera: {{kai: {{usage: {{{text}}}}}}}", "f")


def test_nobody_is_asked_unless_the_file_says_so() -> None:
    found = usage("kValue: 2")
    assert found.usage_source is None
    assert found.engine.queue_usage is not None
    assert found.engine.queue_usage.stale_s == 300.0


def test_prometheus_is_asked_for_our_own_series_unless_others_are_named() -> None:
    text = 'clientType: prometheus, connectionString: "http://p:9090/x", gpuAllocationMetric: kai_queue_allocated_gpus'
    source = usage(text).usage_source
    assert source is not None
    assert (source.url, source.timeout_s, source.resolution_s) == ("http://p:9090/x", 10.0, 60.0)
    assert source.metrics[GPU] == UsageMetrics(
        allocated="kai_queue_allocated_gpus", capacity='tessera_queue_capacity{resource="nvidia.com/gpu"}'
    )
    assert source.metrics[MEMORY].allocated == 'tessera_queue_allocated{resource="memory"}'


def test_a_section_that_is_off_asks_nobody() -> None:
    found = usage('enabled: false, clientType: prometheus, connectionString: "http://p:9090"')
    assert found.usage_source is None
    assert found.engine.queue_usage is None


def test_windows_are_of_three_types() -> None:
    sliding, tumbling, cron = (
        usage(text).engine.queue_usage
        for text in (
            "windowSize: 1h",
            "windowSize: 1h, windowType: tumbling, tumblingWindowStartTime: 2026-01-05T00:30:00Z",
            'windowSize: 24h, windowType: cron, cronString: "0 6 * * *"',
        )
    )
    assert sliding is not None
    assert tumbling is not None
    assert cron is not None
    monday_s = 1767571200.0
    assert sliding.begin_s(monday_s) == monday_s - 3600.0
    assert tumbling.begin_s(monday_s + 3600.0) == monday_s + 1800.0
    assert tumbling.begin_s(monday_s - 1.0) == monday_s - 1800.0
    assert tumbling.begin_s(monday_s + 1800.0) == monday_s + 1800.0
    assert cron.begin_s(monday_s) == monday_s - 18 * 3600.0


def test_no_more_than_the_windows_size_counts_since_cron_fired() -> None:
    found = usage('windowSize: 2h, windowType: cron, cronString: "0 6 * * *"').engine.queue_usage
    assert found is not None
    assert found.begin_s(1767571200.0) == 1767571200.0 - 7200.0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("clientType: prometheus", "expected connectionString beside it, the URL to ask"),
        ("clientType: influx", "expected prometheus"),
        ("clientType: prometheus, connectionString: p:9090", "expected http://HOST:PORT or https://HOST"),
        ('clientType: prometheus, connectionString: "http://p/?q=1"', "expected http://HOST:PORT or https://HOST"),
        ("windowType: tumbling", "expected tumblingWindowStartTime beside it"),
        ("windowType: cron", "expected cronString beside it"),
        ('windowType: cron, cronString: "0 0 30 2 *"', "expected five fields of a schedule that fires"),
        ("tumblingWindowStartTime: 2026-01-05T00:00:00", "expected a time such as 2026-01-05T00:00:00Z"),
        ("tumblingWindowStartTime: soon", "expected a time such as 2026-01-05T00:00:00Z"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("?", r"\?")):
        usage(text)


ASKED = 'clientType: prometheus, connectionString: "http://p:9090"'


@pytest.mark.parametrize(
    ("text", "key", "said"),
    [
        ("fetchInterval: 10m", "fetchInterval", "expected less than stalenessPeriod, 300 seconds where the file says"),
        ("fetchInterval: 5m", "fetchInterval", "expected less than stalenessPeriod, 300 seconds where the file says"),
        ("stalenessPeriod: 1m", "stalenessPeriod", "expected more than fetchInterval, 60 seconds"),
        ("stalenessPeriod: 9m, fetchInterval: 10m", "stalenessPeriod", "expected more than fetchInterval, 600 seconds"),
    ],
)
def test_an_answer_that_is_too_old_before_the_next_is_asked_for_is_refused(text: str, key: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}: .*{said}"):
        usage(f"{ASKED}, {text}")
    usage(text)  # nobody is asked


def test_credentials_stand_in_files_or_in_the_url() -> None:
    found = usage(f"{ASKED}, bearerTokenFile: /run/token, caFile: /run/ca").usage_source
    assert found is not None
    assert (found.token_file, found.ca_file) == (Path("/run/token"), Path("/run/ca"))
    both = 'clientType: prometheus, connectionString: "http://me@p:9090", bearerTokenFile: /t'
    with pytest.raises(ConfigError, match=r"bearerTokenFile: .*expected none beside a user in connectionString"):
        usage(both)


def test_an_answer_that_counts_until_the_next_one_is_fine() -> None:
    found = usage(f"{ASKED}, stalenessPeriod: 601s, fetchInterval: 10m").engine.queue_usage
    assert found is not None
    assert (found.interval_s, found.stale_s) == (600.0, 601.0)


def test_keys_that_nothing_reads_are_named() -> None:
    notes = usage('cronString: "0 0 * * *", connectionString: "http://p"').without_effect
    assert [(note.key, note.why) for note in notes] == [
        ("tessera.kai.usage.cronString", "only windowType cron reads it"),
        ("tessera.kai.usage.connectionString", "only clientType prometheus reads it"),
    ]
