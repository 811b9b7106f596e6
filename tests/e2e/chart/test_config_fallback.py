"""The chart's choice of a configuration, carried out by the agent: values in, the file that is read out."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.config.load import load
from agent.config.names import ConfigName
from hack.cluster.programs import binaries

pytestmark = pytest.mark.e2e

CHART = Path(__file__).parents[3] / "charts" / "tessera"


@pytest.fixture(scope="module", autouse=True)
def helm() -> None:
    binaries.build("helm")


def template(config: str) -> subprocess.CompletedProcess[str]:
    command = [str(binaries.binary("helm")), "template", "t", str(CHART), "--set-json", f"config={config}"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def environment(config: str) -> dict[str, str]:
    """What the agent's container is given as plain values."""
    done = template(config)
    assert done.returncode == 0, done.stderr
    objects: list[dict[str, Any]] = [one for one in yaml.safe_load_all(done.stdout) if one]
    (daemonset,) = (one for one in objects if one["kind"] == "DaemonSet")
    (agent,) = daemonset["spec"]["template"]["spec"]["containers"]
    return {one["name"]: one["value"] for one in agent["env"] if "value" in one}


@pytest.mark.parametrize(
    ("config", "files", "read"),
    [
        ('{"name": "theirs"}', ["any-name.yaml"], "any-name.yaml"),
        ('{"name": "theirs"}', ["default", "other"], "default"),
        ('{"name": "theirs"}', ["a", "b"], None),
        ('{"name": "theirs", "default": "b"}', ["a", "b"], "b"),
        ('{"name": "theirs", "fallbackStrategies": ["named"]}', ["only"], None),
        ('{"name": "theirs", "fallbackStrategies": ["empty"]}', ["default"], None),
        ('{"map": {"only": {"version": "v1"}}}', ["only"], "only"),
        ('{"map": {"default": "version: v1", "b": "version: v1"}}', ["default", "b"], "default"),
        ('{"map": {"a": "version: v1", "b": "version: v1"}, "default": "a"}', ["a", "b"], "a"),
    ],
)
def test_chart_and_agent_take_the_same_file(config: str, files: list[str], read: str | None, tmp_path: Path) -> None:
    folder = tmp_path / "mounted"
    folder.mkdir()
    for name in files:
        (folder / name).write_text("version: v1\n")
    env = environment(config)
    assert env["TESSERA_CONFIG_DIR"] == "/etc/tessera"
    assert "TESSERA_CONFIG" not in env
    settings = load(None, env | {"TESSERA_CONFIG_DIR": str(folder)}, {}).settings
    path = ConfigName(tmp_path).path(settings.config_dir, None, settings.config_fallback)
    assert path == (None if read is None else folder / read)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ('{"map": {"a": "x", "b": "x"}}', "config.default is needed to choose one of a, b"),
        ('{"map": {"a": "x"}, "default": "q"}', 'config.default: found "q", expected one of a'),
        ('{"map": {"a": "x"}, "fallbackStrategies": ["named"]}', "config.default is needed to choose one of a"),
        ('{"map": {"a": "x"}, "name": "theirs"}', "give either name"),
        ('{"name": "theirs", "fallbackStrategies": ["first"]}', "fallbackStrategies"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_installed(config: str, said: str) -> None:
    done = template(config)
    assert done.returncode != 0
    assert said in done.stderr
