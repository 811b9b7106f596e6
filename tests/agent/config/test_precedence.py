"""Command line over TESSERA_* over NVIDIA's names over the file over the default."""

from pathlib import Path
from typing import Any

import pytest

from agent.config.arguments import parse_args
from agent.config.load import LoadedConfig, load
from agent.config.settings import Address
from agent.config.table import FLAG_ALIASES, NVIDIA, OPTIONS
from inventory.layout.sharing import MigStrategy
from tests.agent.answers import rows
from yamlfile import ConfigError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "c.yaml"
    path.write_text("flags: {migStrategy: single}\n")
    return path


def test_each_source_wins_over_the_next(file: Path) -> None:
    def strategy(path: Path | None, env: dict[str, str], *argv: str) -> MigStrategy:
        return load(path, env, parse_args(argv)).settings.layout.mig_strategy

    own, nvidia = {"TESSERA_MIG_STRATEGY": "none"}, {"MIG_STRATEGY": "mixed"}
    assert strategy(None, {}) is MigStrategy.NONE
    assert strategy(file, {}) is MigStrategy.SINGLE
    assert strategy(file, nvidia) is MigStrategy.MIXED
    assert strategy(file, own | nvidia) is MigStrategy.NONE
    assert strategy(file, own | nvidia, "--mig-strategy", "mixed") is MigStrategy.MIXED


def test_every_flag_has_its_variable() -> None:
    for option in OPTIONS:
        if option.flag:
            assert option.variables[0] == "TESSERA_" + option.flag[2:].upper().replace("-", "_")


def test_no_two_settings_share_a_name() -> None:
    names = [name for option in OPTIONS for name in (option.flag, *option.variables, *option.paths) if name]
    assert len(names) == len(set(names))


def test_the_agents_own_flags_are_read() -> None:
    argv = (
        "--node-name n1 --simulate fleet.yaml --kubelet-dir /k --cdi-dir /c --state-dir=/s --metrics-address [::1]:9 "
        "--kubeconfig none --sys-root /y --proc-root /p --pass-device-specs --log-level debug"
    )
    settings = load(None, {"NODE_NAME": "other"}, parse_args(argv.split())).settings
    assert settings.node_name == "n1"
    assert settings.simulate == Path("fleet.yaml")
    assert settings.device_plugins_dir == Path("/k/device-plugins")
    assert settings.registration_socket == Path("/k/device-plugins/kubelet.sock")
    assert (settings.cdi_dir, settings.state_dir) == (Path("/c"), Path("/s"))
    assert settings.metrics_address == Address("::1", 9)
    assert (settings.kubeconfig, settings.use_api_server) == (None, False)
    assert (settings.sys_root, settings.proc_root) == (Path("/y"), Path("/p"))
    assert settings.labels.machine_type_file == Path("/y/class/dmi/id/product_name")
    assert settings.allocation.pass_device_specs
    assert settings.logging.level == "debug"


def test_a_list_may_be_given_by_commas_or_by_repeating_the_flag() -> None:
    once = parse_args(["--device-list-strategy", "cdi-cri,envvar"])
    twice = parse_args(["--device-list-strategy", "cdi-cri", "--device-list-strategy", "envvar"])
    assert load(None, {}, once).settings == load(None, {}, twice).settings


def test_nvidias_other_flag_names_work() -> None:
    flags = parse_args(["--nvidia-driver-root", "/d", "--container-driver-root", "/e"])
    driver = load(None, {}, flags).settings.driver
    assert (driver.driver_root, driver.dev_root, driver.container_driver_root) == (Path("/d"), Path("/d"), Path("/e"))


def test_the_config_file_itself_may_come_from_the_environment(file: Path) -> None:
    loaded = load(None, {"CONFIG_FILE": str(file)}, {})
    assert loaded.path == file
    assert loaded.settings.layout.mig_strategy is MigStrategy.SINGLE


def test_an_empty_flag_of_nvidias_is_the_default_whatever_the_file_says(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("flags: {mpsRoot: /run/mps}")
    assert load(None, {}, {"--config": str(tmp_path / "config.yaml"), "--mps-root": ""}).settings.mps_root is None
    assert load(None, {"CONFIG_FILE": "/nowhere"}, {"--config": ""}).path is None


def test_feature_discoverys_own_variables_count_where_the_plugins_are_not_there() -> None:
    assert load(None, {"GFD_MIG_STRATEGY": "mixed"}, {}).settings.layout.mig_strategy == "mixed"
    both = {"GFD_MIG_STRATEGY": "mixed", "MIG_STRATEGY": "single"}
    assert load(None, both, {}).settings.layout.mig_strategy == "single"


def test_an_empty_variable_is_as_good_as_none_but_for_the_socket() -> None:
    assert (
        load(None, {"MIG_STRATEGY": "", "PASS_DEVICE_SPECS": ""}, {}).settings.layout.mig_strategy is MigStrategy.NONE
    )
    assert load(None, {"KUBELET_SOCKET": ""}, {}).settings.registration_socket is None
    assert load(None, {"KUBELET_SOCKET": "/x"}, {}).settings.registration_socket == Path("/x")


@pytest.mark.parametrize(
    ("env", "argv", "line"),
    [
        ({"MIG_STRATEGY": "x"}, [], "environment: MIG_STRATEGY: found 'x', expected none, single or mixed"),
        (
            {"TESSERA_PASS_DEVICE_SPECS": "2"},
            [],
            "environment: TESSERA_PASS_DEVICE_SPECS: found '2', expected true or false",
        ),
        (
            {},
            ["--metrics-address", "9400"],
            "command line: --metrics-address: found '9400', expected HOST:PORT or none",
        ),
        (
            {},
            ["--metrics-address", "a:70000"],
            "command line: --metrics-address: found 'a:70000', expected HOST:PORT or none",
        ),
    ],
)
def test_a_bad_flag_or_variable_is_named(env: dict[str, str], argv: list[str], line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, env, parse_args(argv))
    assert str(caught.value) == line
    assert not caught.value.from_file


def test_an_unknown_flag_exits_2_and_help_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as wrong:
        parse_args(["--node", "x"])
    assert wrong.value.code == 2
    with pytest.raises(SystemExit) as helped:
        parse_args(["--help"])
    assert helped.value.code == 0
    assert "examples:" in capsys.readouterr().out


def health(**env: str) -> tuple[bool, frozenset[int] | None, frozenset[int] | None]:
    settings = load(None, env, {}).settings.health
    return settings.enabled, settings.disabled_xids, settings.enabled_xids


def test_nvidias_health_switches_mean_what_they_mean_there() -> None:
    none: frozenset[int] = frozenset()
    assert health() == (True, none, none)
    assert health(DP_DISABLE_HEALTHCHECKS="all") == (False, None, none)
    assert health(DP_DISABLE_HEALTHCHECKS="XIDS") == (True, None, none)
    assert health(DP_DISABLE_HEALTHCHECKS="48, 79") == (True, frozenset({48, 79}), none)
    assert health(DP_DISABLE_HEALTHCHECKS="all", DP_ENABLE_HEALTHCHECKS="79") == (True, None, frozenset({79}))
    assert health(DP_DISABLE_HEALTHCHECKS="all", DP_ENABLE_HEALTHCHECKS="all") == (True, none, None)


@pytest.mark.parametrize("words", [["--nosuch"], ["--config"], ["extra"]])
def test_a_command_line_that_is_not_understood_is_one_line(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_args(words)
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("tessera-agent: command line: ")
    assert words[0] in line


def setting(settings: Any, path: str) -> str:
    """One setting as text; a list's members are separated by blanks."""
    for part in path.split("."):
        settings = getattr(settings, part)
    return " ".join(map(str, settings)) if isinstance(settings, tuple) else str(settings)


@pytest.mark.parametrize("way", ["--flag value", "-flag value", "--flag=value", "variable"])
@pytest.mark.parametrize("row", rows("flags"), ids=lambda row: f"{row['env']}-{row['flag']}={row['value']}")
def test_every_flag_of_nvidias_plugin_and_its_variable_do_what_they_say(row: dict[str, str], way: str) -> None:
    flag, value = f"--{row['flag']}", row["value"]
    argv = {"--flag value": [flag, value], "-flag value": [flag[1:], value], "--flag=value": [f"{flag}={value}"]}
    env = {row["env"]: value} if way == "variable" else {}

    def loaded() -> LoadedConfig:
        return load(None, env, parse_args(argv.get(way, [])))

    if "refused" in row:
        with pytest.raises(ConfigError) as refused:
            loaded()
        assert row["refused"] in str(refused.value)
        return
    if row["setting"]:
        assert setting(loaded().settings, row["setting"]) == row["means"]
        assert setting(load(None, {}, {}).settings, row["setting"]) != row["means"] or "warned" in row
    where = f"environment: {row['env']}" if way == "variable" else f"command line: {primary(flag)}"
    assert loaded().warnings == ((f"{where}: {row['warned']}",) if "warned" in row else ())


def primary(flag: str) -> str:
    return FLAG_ALIASES.get(flag, flag)


def test_every_flag_and_variable_of_nvidias_is_among_those_that_are_tried() -> None:
    tried = {f"--{row['flag']}" for row in rows("flags")}
    ours = {option.flag for option in NVIDIA if option.flag} | set(FLAG_ALIASES)
    assert tried == ours | {"--kubelet-socket"}
    of_flags = {name for option in NVIDIA if option.flag for name in option.env}
    assert of_flags <= {row["env"] for row in rows("flags")}


@pytest.mark.parametrize("name", ["GFD_ONESHOT", "GFD_USE_NODE_FEATURE_API", "GFD_OUTPUT_FILE"])
def test_a_variable_without_effect_is_said_to_have_none(name: str) -> None:
    (warning,) = load(None, {name: "true"}, {}).warnings
    assert warning.startswith(f"environment: {name}: no effect: ")


@pytest.mark.parametrize("row", rows("health-checks"), ids=lambda row: row["text"])
@pytest.mark.parametrize("name", ["DP_DISABLE_HEALTHCHECKS", "DP_ENABLE_HEALTHCHECKS"])
def test_health_switches_are_read_as_nvidias_plugin_reads_them(row: dict[str, Any], name: str) -> None:
    loaded = load(None, {name: row["text"]}, {})
    health = loaded.settings.health
    found = health.disabled_xids if name == "DP_DISABLE_HEALTHCHECKS" else health.enabled_xids
    assert found == (None if row["means"] == "all" else frozenset(row["means"]))
    assert health.enabled
    said = [f"environment: {name}: found {word!r}, expected XIDs, or all or xids: passed over" for word in row["bad"]]
    assert list(loaded.warnings) == said


def test_all_switches_every_check_off_wherever_it_stands_in_the_list() -> None:
    assert not load(None, {"DP_DISABLE_HEALTHCHECKS": "79, all"}, {}).settings.health.enabled
