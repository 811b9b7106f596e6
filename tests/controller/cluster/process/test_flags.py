"""The command line and its environment, and what happens to what is wrong in them."""

from pathlib import Path

import pytest

from controller.cluster.config.settings import Address
from controller.cluster.process.flags import Flags, TextRequested, UsageError, parse
from controller.main import run


def test_nothing_given_is_the_defaults() -> None:
    assert parse([], {}) == Flags()


def test_a_flag_wins_over_its_variable() -> None:
    env = {"TESSERA_WEB_ADDRESS": "127.0.0.1:1", "TESSERA_LEADER_ELECT": "false", "TESSERA_CONFIG": "/a"}
    found = parse(["--web-address", "127.0.0.1:2", "--leader-elect"], env)
    assert found.web == Address("127.0.0.1", 2)
    assert found.leader_elect is True
    assert found.config == Path("/a")


def test_addresses_may_be_none_or_all() -> None:
    found = parse(["--metrics-address=0", "--web-address=:9"], {})
    assert found.metrics == (None,)
    assert found.web == Address("0.0.0.0", 9)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--nonsense"], "'--nonsense': no such flag (--help lists them)"),
        (["--config"], "--config: found nothing, expected a value"),
        (["--only", "jobs"], "--only: found 'jobs', expected core"),
        (["--web-address", "here"], "--web-address: found 'here', expected HOST:PORT, :PORT or 0 for none"),
        (["--web-address", "h:70000"], "--web-address: found 'h:70000', expected HOST:PORT, :PORT or 0 for none"),
        (["--leader-elect=maybe"], "--leader-elect: found 'maybe', expected true or false"),
        (["--log-level", "loud"], "--log-level: found 'loud', expected debug or info or warning or error"),
    ],
)
def test_a_mistake_is_one_line(argv: list[str], message: str) -> None:
    with pytest.raises(UsageError) as wrong:
        parse(argv, {})
    assert str(wrong.value) == message


def test_help_and_version_are_answers() -> None:
    for word in ("--help", "--version"):
        with pytest.raises(TextRequested):
            parse([word], {})


def test_every_flag_in_the_help_is_taken() -> None:
    with pytest.raises(TextRequested) as requested:
        parse(["--help"], {})
    for name in (
        "config",
        "kubeconfig",
        "metrics-address",
        "web-address",
        "only",
        "namespace",
        "identity",
        "log-level",
    ):
        assert f"--{name} " in str(requested.value)


def test_a_wrong_configuration_ends_with_2_and_names_file_line_and_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\ntessera: {polizy: kueue}\n")
    assert run(["--config", str(file)], {}) == 2
    error = capsys.readouterr().err
    assert f"{file}:3" in error
    assert "polizy" in error


def test_a_kubeconfig_that_is_not_there_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--kubeconfig", str(tmp_path / "none"), "--metrics-address", "0"], {}) == 2
    assert "none" in capsys.readouterr().err
