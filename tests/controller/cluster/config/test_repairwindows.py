"""Windows for repairs in the controller's configuration."""

import pytest

from controller.cluster.config.keys import V1BETA1
from controller.cluster.config.load import parse
from controller.cluster.config.settings import ControllerConfig
from controller.scheduler.model.cron import Window, cron
from yamlfile import ConfigError


def configured(windows: str) -> ControllerConfig:
    text = f"apiVersion: {V1BETA1}\nkind: Configuration\ntessera: {{remediation: {{repairWindows: {windows}}}}}\n"
    return parse(text, "f")


def test_windows_have_their_zone_and_are_in_utc_without_one() -> None:
    found = configured('[{from: "0 2 * * 6", for: 4h, zone: Europe/Berlin}, {from: "0  3 * * *", for: 60s}]')
    expected = Window(cron("0 2 * * 6"), 14400.0, "Europe/Berlin"), Window(cron("0 3 * * *"), 60.0)
    assert found.remediation.windows == expected
    assert configured("[]").remediation.windows == ()


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        ("{from: '0 2 * *', for: 4h}", "[0].from: found '0 2 * *', expected five fields of a schedule"),
        (
            "{from: '0 2 30 2 *', for: 4h}",
            "[0].from: found '0 2 30 2 *', expected five fields of a schedule that fires",
        ),
        (
            "{from: '0 2 * * *', for: 10s}",
            "[0].for: found '10s', expected a duration such as 90s or 1h30m, at least 60s",
        ),
        (
            "{from: '0 2 * * *', for: 4h, zone: Mars}",
            "[0].zone: found 'Mars', expected a time zone such as Europe/Berlin",
        ),
        ("{from: '0 2 * * *'}", "[0]: found none, expected the key for"),
        ("{for: 4h}", "[0]: found none, expected the key from"),
    ],
)
def test_a_window_that_is_wrong_gets_one_line(window: str, expected: str) -> None:
    with pytest.raises(ConfigError) as refused:
        configured(f"[{window}]")
    assert f"3: tessera.remediation.repairWindows{expected}" in str(refused.value)
    assert "\n" not in str(refused.value)
