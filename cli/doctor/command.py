"""``tessera doctor``: the faults of this node, one line each, with the next step."""

import os
import sys
from pathlib import Path

import click
import msgspec
from rich.text import Text

from agent.config.load import load
from agent.config.settings import Settings
from agent.mps.runner import programs
from agent.report import NodeReport
from cli.access.local import fetch, state_dir_option
from cli.doctor.checks import ERROR, Finding, Patient, examine
from cli.printing.console import show
from cli.printing.output import output_option, printed
from yamlfile import ConfigError

MARKS = {"ok": "ok     ", "warning": "WARNING", "error": "ERROR  "}


@click.command(short_help="What keeps GPUs from being served on this node.")
@click.option("--config", type=click.Path(path_type=Path), help="The agent's config file, as the agent gets it.")
@click.option("--kubelet-dir", type=click.Path(path_type=Path), help="The kubelet's folder.")
@click.option("--simulate", type=click.Path(path_type=Path), help="The fleet file, where the agent simulates its GPUs.")
@state_dir_option
@output_option
def doctor(config: Path | None, kubelet_dir: Path | None, simulate: Path | None, state_dir: Path, output: str) -> None:
    """Look for what keeps GPUs from being served on this node. It changes nothing.

    Run it where the agent runs: on the host, or in the agent's container. It takes the agent's environment variables.
    Exit codes: 0 nothing is wrong, 1 something is (warnings alone do not count), 2 it was asked wrongly.

    \b
    Examples:
      tessera doctor                              all checks
      tessera doctor --config /etc/tessera.yaml   with the configuration that the agent has
      tessera doctor -o json                      for programs
    """
    flags = {"--state-dir": str(state_dir)}
    given = {"--config": config, "--kubelet-dir": kubelet_dir, "--simulate": simulate}
    flags |= {flag: str(value) for flag, value in given.items() if value is not None}
    findings: list[Finding] = []
    settings = _settings(flags, findings)
    report, silence = _report(state_dir)
    control = programs(settings.mps, simulated=settings.simulate is not None).control
    findings += examine(Patient(settings, report, silence, control))
    if output != "text":
        printed({"findings": findings}, output)
    else:
        for finding in findings:
            advice = f" ({finding.advice})" if finding.advice else ""
            show(Text(f"{MARKS[finding.level]}  {finding.check}: {finding.text}{advice}"))
    if any(finding.level == ERROR for finding in findings):
        sys.exit(1)


def _settings(flags: dict[str, str], findings: list[Finding]) -> Settings:
    """The settings that the agent would run with. A config that it would refuse is a finding, and the rest goes on
    without it.
    """
    try:
        loaded = load(None, dict(os.environ), flags)
    except ConfigError as wrong:
        findings.append(Finding("config", ERROR, str(wrong), "correct it: the agent keeps its last good configuration"))
        return load(None, {}, {flag: value for flag, value in flags.items() if flag != "--config"}).settings
    findings.extend(Finding("config", "warning", warning, "see docs/configuration.md") for warning in loaded.warnings)
    return loaded.settings


def _report(state_dir: Path) -> tuple[NodeReport | None, str]:
    try:
        return msgspec.json.decode(fetch(state_dir / "agent.sock", "/v1/node"), type=NodeReport), ""
    except click.ClickException as failed:
        return None, failed.message
    except msgspec.MsgspecError:
        return None, "its answer is another version's"
