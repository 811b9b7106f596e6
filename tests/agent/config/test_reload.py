"""A reload touches what changed; a bad file falls back to the last good one."""

from pathlib import Path

import pytest

from agent.config.changes import Changes, Concern, changed
from agent.config.load import last_good, load, load_or_last_good, remember
from yamlfile import ConfigError

GOOD = "flags: {migStrategy: single}\n"
BAD = "flags: {migStrategy: singel}\n"


@pytest.mark.parametrize(
    ("text", "concern"),
    [
        ("flags: {migStrategy: mixed}", Concern.LAYOUT),
        ("sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2}]}}", Concern.LAYOUT),
        ("resources: {gpus: [{pattern: '*', name: g}]}", Concern.LAYOUT),
        ("flags: {plugin: {deviceIDStrategy: index}}", Concern.ALLOCATION),
        ("flags: {plugin: {sharedDevicesAllocationPolicy: packed}}", Concern.ALLOCATION),
        ("health: {probationSeconds: 1}", Concern.HEALTH),
        ("labels: {enabled: false}", Concern.LABELS),
        ("events: {enabled: false}", Concern.EVENTS),
        ("logging: {level: debug}", Concern.LOGGING),
    ],
)
def test_a_change_touches_its_own_concern_only(tmp_path: Path, text: str, concern: Concern) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    env = {"NODE_NAME": "n"}
    changes = changed(load(None, env, {}).settings, load(file, env, {}).settings)
    assert changes == Changes(frozenset({concern}))


def test_what_only_a_restart_can_change_is_named() -> None:
    old = load(None, {"NODE_NAME": "a"}, {}).settings
    new = load(None, {"NODE_NAME": "b", "TESSERA_STATE_DIR": "/elsewhere"}, {}).settings
    changes = changed(old, new)
    assert changes.concerns == frozenset()
    assert changes.restart_needed == ("node_name", "state_dir")


def test_nothing_changed_is_falsy() -> None:
    settings = load(None, {"NODE_NAME": "a"}, {}).settings
    assert not changed(settings, settings)


def test_the_last_good_configuration_is_kept_for_its_owner_alone(tmp_path: Path) -> None:
    assert last_good(tmp_path) is None
    remember(tmp_path / "state", GOOD)
    (kept,) = (tmp_path / "state").iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600
    assert last_good(tmp_path / "state") == GOOD


def test_a_link_in_place_of_the_last_good_one_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text(GOOD)
    (tmp_path / "config.last-good").symlink_to(tmp_path / "elsewhere")
    assert last_good(tmp_path) is None


def test_a_bad_file_at_start_gives_way_to_the_last_good_one(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(BAD)
    flags = {"--state-dir": str(tmp_path), "--config": str(file)}
    with pytest.raises(ConfigError, match="migStrategy"):
        load_or_last_good(None, {}, flags)
    remember(tmp_path, GOOD)
    loaded = load_or_last_good(None, {}, flags)
    assert loaded.settings.layout.mig_strategy == "single"
    assert loaded.path == file
    assert "singel" in str(loaded.rejected)
    file.unlink()
    assert "no such file" in str(load_or_last_good(None, {}, flags).rejected)


def test_a_last_good_one_that_this_version_refuses_is_no_help(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(BAD)
    remember(tmp_path, "version: v9\n")
    with pytest.raises(ConfigError, match="singel"):
        load_or_last_good(file, {}, {"--state-dir": str(tmp_path)})


def test_a_bad_flag_is_no_reason_for_the_last_good_file(tmp_path: Path) -> None:
    remember(tmp_path, GOOD)
    with pytest.raises(ConfigError, match="environment"):
        load_or_last_good(None, {"MIG_STRATEGY": "x"}, {"--state-dir": str(tmp_path)})
