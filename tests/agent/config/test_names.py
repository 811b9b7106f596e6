"""Which of the named configurations holds: the label's, the default, or what the strategies find."""

from pathlib import Path
from typing import Any

import pytest

from agent.config.arguments import parse_args
from agent.config.load import load
from agent.config.names import ConfigName, fall_back
from agent.config.settings import ConfigFallback
from tests.agent.answers import rows
from yamlfile import ConfigError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A mounted ConfigMap, empty so far."""
    made = tmp_path / "configs"
    (made / "..2026_01_01").mkdir(parents=True)
    (made / "..data").symlink_to("..2026_01_01")
    return made


def put(folder: Path, *names: str) -> None:
    """Files as the kubelet mounts them: links through ``..data``."""
    for name in names:
        (folder / "..2026_01_01" / name).write_text("version: v1\n")
        (folder / name).symlink_to(f"..data/{name}")


def fallback(row: dict[str, Any]) -> ConfigFallback:
    strategies = ",".join(row.get("strategies", ["named", "single"]))
    argv = ["--fallback-strategies", strategies, *(["--default-config", row["default"]] if "default" in row else [])]
    return load(None, {}, parse_args(argv)).settings.config_fallback


@pytest.mark.parametrize("row", rows("fallback"), ids=str)
def test_the_file_is_the_one_that_nvidias_config_manager_takes(row: dict[str, Any], folder: Path) -> None:
    put(folder, *row["files"])
    names = ConfigName(folder.parent)
    names.choose(row.get("label"))
    path = names.path(folder, None, fallback(row))
    assert (names.undecided is not None) == row.get("refused", False)
    assert path == (folder / row["takes"] if row.get("takes") else None)


def test_the_two_strategies_of_nvidias_chart_are_the_agents_own() -> None:
    plain = load(None, {}, {}).settings.config_fallback
    assert plain == ConfigFallback()
    assert fall_back(["only"], plain) == "only"
    given = load(None, {"FALLBACK_STRATEGIES": "empty", "DEFAULT_CONFIG": "x"}, {}).settings.config_fallback
    assert (given.default, given.strategies) == ("x", ("empty",))


def test_files_of_which_none_is_chosen_are_named(folder: Path) -> None:
    put(folder, "b", "a")
    names = ConfigName(folder.parent)
    assert names.path(folder, None, ConfigFallback()) is None
    assert str(names.undecided) == (
        f"{folder}: found a, b, expected one of them chosen by the node's label or --default-config, "
        "or one that a strategy finds: named, single"
    )
    assert names.path(folder, folder / "c", ConfigFallback()) == folder / "c", "what --config says holds"
    assert names.undecided is None


def test_without_files_there_is_nothing_to_choose(folder: Path) -> None:
    names = ConfigName(folder.parent)
    for where in (folder, folder / "missing"):
        assert names.path(where, None, ConfigFallback()) is None
        assert names.undecided is None


@pytest.mark.parametrize("name", ["a/b", "..", "."])
def test_a_default_is_a_name_and_no_path(name: str) -> None:
    with pytest.raises(ConfigError, match="expected a file's name without a folder"):
        load(None, {"DEFAULT_CONFIG": name}, {})


@pytest.mark.parametrize("word", ["any", "Single"])
def test_an_unknown_strategy_is_refused(word: str) -> None:
    with pytest.raises(ConfigError, match="expected a list of named, single and empty"):
        load(None, {"FALLBACK_STRATEGIES": word}, {})
