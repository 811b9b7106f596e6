"""Formats of answers: one value as JSON, YAML and names, and text that is anybody's on a terminal."""

import io

import pytest
import yaml

from cli.printing.console import console, show, titled
from cli.printing.output import print_names, printed, printed_json, visible
from controller.cluster.watching.kinds import WORKLOADS
from kube.resources import PODS

BODY = {"z": [1, None, True], "a": "2026-11-21T17:21:22Z", "text": "yes: no"}


def test_yaml_says_what_json_says_in_the_same_order(capsys: pytest.CaptureFixture[str]) -> None:
    printed(BODY, "yaml")
    told = capsys.readouterr().out
    assert yaml.safe_load(told) == BODY
    assert told.index("z:") < told.index("a:") < told.index("text:")


def test_json_is_indented_whether_it_comes_as_text_or_as_a_value(capsys: pytest.CaptureFixture[str]) -> None:
    printed({"a": 1})
    printed_json(b'{"a":1}')
    assert capsys.readouterr().out == '{\n  "a": 1\n}\n' * 2


def test_a_name_is_as_kubectl_takes_it(capsys: pytest.CaptureFixture[str]) -> None:
    print_names(WORKLOADS, ["team/a", "b"])
    print_names(PODS, ["team/p"])
    assert capsys.readouterr().out == "workload.kueue.x-k8s.io/a\nworkload.kueue.x-k8s.io/b\npod/p\n"


def test_brackets_and_escape_sequences_in_a_message_are_text(capsys: pytest.CaptureFixture[str]) -> None:
    table = titled("t", "what")
    table.add_row("found [/nowhere] :smile: \x1b[2J\x07 [red]x")
    show(table)
    assert capsys.readouterr().out.splitlines()[-1] == r"found [/nowhere] :smile: \x1b[2J\x07 [red]x"
    assert visible("a\tb\nc\x9b") == "a\tb\nc\\x9b"


def test_colours_are_for_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    for terminal in (True, False):
        screen = io.StringIO()
        monkeypatch.setattr(screen, "isatty", lambda terminal=terminal: terminal)
        monkeypatch.setattr("sys.stdout", screen)
        console().print("told", style="red")
        assert ("\x1b[" in screen.getvalue()) is terminal
