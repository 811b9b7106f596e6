"""The config file: NVIDIA's as it is, ours strictly, and one exact line for each mistake."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.config.load import LoadedConfig, load
from agent.health.settings import XidOverride
from agent.health.xids import FaultClass
from deviceplugin.strategy import DeviceIdStrategy, DeviceListStrategy
from inventory.devices import ResourceName
from inventory.layout.layout import plan
from inventory.layout.sharing import (
    DeviceSelector,
    MigStrategy,
    ReplicaPolicy,
    ReplicatedResource,
    ResourcePattern,
    SharingMode,
)
from tests.agent.answers import rows
from tests.support.inventory.builders import gpu, node
from yamlfile import ConfigError


def read(tmp_path: Path, text: str, **env: str) -> LoadedConfig:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    return load(file, {"NODE_NAME": "n", **env}, {})


def mistake(tmp_path: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert caught.value.from_file
    return str(caught.value).removeprefix(str(tmp_path / "c.yaml") + ":")


NVIDIA_FULL = """
version: v1
flags:
  migStrategy: mixed
  failOnInitError: false
  mpsRoot: /run/nvidia/mps
  nvidiaDriverRoot: /run/nvidia/driver
  nvidiaDevRoot: null
  gdrcopyEnabled: true
  gdsEnabled: true
  mofedEnabled: true
  useNodeFeatureAPI: true
  deviceDiscoveryStrategy: auto
  plugin:
    passDeviceSpecs: true
    deviceListStrategy: [cdi-annotations, envvar, cdi-annotations]
    deviceIDStrategy: index
    cdiAnnotationPrefix: cdi.example/
    nvidiaCTKPath: /opt/nvidia-ctk
    containerDriverRoot: /host
    sharedDevicesAllocationPolicy: packed
  gfd:
    oneshot: false
    noTimestamp: true
    sleepInterval: 1m30s
    outputFile: /tmp/gfd
    machineTypeFile: /tmp/machine
resources:
  gpus:
  - {pattern: "*A100*", name: a100}
  - {pattern: "*", name: nvidia.com/gpu}
  mig:
  - {pattern: "1g.*", name: nvidia.com/small}
sharing:
  timeSlicing:
    renameByDefault: true
    failRequestsGreaterThanOne: true
    resources:
    - {name: a100, replicas: 10, rename: a100-shared, devices: [0, "1:2", GPU-00000000-0000-0000-0000-000000000003]}
    - {name: a100, replicas: 2, devices: [2]}
    - {name: nvidia.com/gpu, replicas: 4, devices: 3}
imex: {channelIDs: [0], required: true}
"""


def test_nvidias_file_is_read_as_it_is(tmp_path: Path) -> None:
    loaded = read(tmp_path, NVIDIA_FULL)
    settings = loaded.settings
    assert settings.layout.mig_strategy is MigStrategy.MIXED
    assert settings.layout.gpu_patterns == (
        ResourcePattern("*A100*", ResourceName("nvidia.com/a100")),
        ResourcePattern("*", ResourceName("nvidia.com/gpu")),
    )
    assert settings.layout.mig_patterns == (ResourcePattern("1g.*", ResourceName("nvidia.com/small")),)
    assert settings.allocation.strategies == (DeviceListStrategy.CDI_ANNOTATIONS, DeviceListStrategy.ENVVAR)
    assert settings.allocation.device_id is DeviceIdStrategy.INDEX
    assert settings.allocation.pass_device_specs
    assert settings.allocation.cdi_annotation_prefix == "cdi.example/"
    assert (settings.allocation.gdrcopy, settings.allocation.gds, settings.allocation.mofed) == (True, True, True)
    assert settings.allocation.imex_channels == (0,)
    assert settings.imex_required
    assert settings.replica_policy is ReplicaPolicy.PACKED
    assert settings.driver.driver_root == Path("/run/nvidia/driver")
    assert settings.driver.dev_root == Path("/run/nvidia/driver"), "the driver root unless said otherwise"
    assert settings.driver.cdi_hook_path == Path("/opt/nvidia-ctk")
    assert settings.driver.container_driver_root == Path("/host")
    assert (settings.labels.no_timestamp, settings.labels.sleep_interval_s) == (True, 90.0)
    assert settings.labels.machine_type_file == Path("/tmp/machine")
    assert not settings.fail_on_init_error
    assert {line.split(": ")[1] for line in loaded.warnings} == {
        "flags.useNodeFeatureAPI",
        "flags.gfd.oneshot",
        "flags.gfd.outputFile",
    }, "what has no effect is said to have none, and nothing else is"


def test_sharing_with_devices_and_rename_becomes_the_layout(tmp_path: Path) -> None:
    replication = read(tmp_path, NVIDIA_FULL).settings.layout.replication
    assert replication is not None
    assert replication.mode is SharingMode.TIME_SLICING
    assert replication.rename_by_default
    assert replication.fail_requests_greater_than_one
    assert replication.resources == (
        ReplicatedResource(
            name=ResourceName("nvidia.com/a100"),
            replicas=10,
            rename=ResourceName("nvidia.com/a100-shared"),
            devices=DeviceSelector(refs=("0", "1:2", "GPU-00000000-0000-0000-0000-000000000003")),
        ),
        ReplicatedResource(name=ResourceName("nvidia.com/a100"), replicas=2, devices=DeviceSelector(refs=("2",))),
        ReplicatedResource(name=ResourceName("nvidia.com/gpu"), replicas=4, devices=DeviceSelector(count=3)),
    )


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "version: v1", 'version: ""', "{}", "flags:\nsharing:\nresources: {}\n"]
)
def test_an_empty_file_gives_the_defaults(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text).settings == load(None, {"NODE_NAME": "n"}, {}).settings


def test_json_is_read_without_a_yaml_parser(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.write_text(
        '{"version": "v1",\n "flags": {"migStrategy": "single", "plugin": {"deviceListStrategy": "cdi-cri,envvar"}}}'
    )
    code = (
        "import sys; from pathlib import Path; from agent.config.load import load\n"
        f"settings = load(Path({str(file)!r}), {{}}, {{}}).settings\n"
        "assert settings.layout.mig_strategy == 'single'\n"
        "assert settings.allocation.strategies == ('cdi-cri', 'envvar')\n"
        "assert 'yaml' not in sys.modules, 'yaml was imported'\n"
    )
    root = Path(__file__).parents[3]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root, env={"PYTHONPATH": str(root)})


def test_braces_that_are_not_json_are_yaml(tmp_path: Path) -> None:
    assert read(tmp_path, "{flags: {migStrategy: single}}").settings.layout.mig_strategy is MigStrategy.SINGLE


def test_an_anchor_may_be_used_again(tmp_path: Path) -> None:
    text = "resources:\n  gpus: &all\n  - {pattern: '*', name: gpu}\n  mig: *all\n"
    assert read(tmp_path, text).settings.layout.mig_patterns[0].pattern == "*"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("version: v2", "1: version: found 'v2', expected v1"),
        ("version: 1", "1: version: found 1, expected v1"),
        ("[1]", "1: found a list, expected a section"),
        ("flags: 3", "1: flags: found 3, expected a section"),
        ("flags:\n  migStrategy: all", "2: flags.migStrategy: found 'all', expected none, single or mixed"),
        ("flags:\n  migStrategy: [none]", "2: flags.migStrategy: found a list, expected none, single or mixed"),
        ("flags:\n  gdsEnabled: 'yes'", "2: flags.gdsEnabled: found 'yes', expected true or false"),
        (
            "flags:\n  plugin:\n    deviceListStrategy: [envvar, cdi]",
            "3: flags.plugin.deviceListStrategy: found 'cdi', expected a list of envvar, volume-mounts,",
        ),
        (
            "flags: {gfd: {sleepInterval: 1 hour}}",
            "1: flags.gfd.sleepInterval: found '1 hour', expected a duration such as 60s",
        ),
        (
            "flags: {gfd: {sleepInterval: -5}}",
            "1: flags.gfd.sleepInterval: found -5, expected a duration such as 60s",
        ),
        ("imex: {channelIDs: [0, 1]}", "1: imex.channelIDs: found a list, expected 0 or nothing"),
        (
            "sharing:\n  timeSlicing:\n    resources:\n    - name: gpu\n      replicas: 1",
            "5: sharing.timeSlicing.resources[0].replicas: found 1, expected an integer from 2 to 2147483647",
        ),
        (
            "sharing: {timeSlicing: {resources: []}}",
            "1: sharing.timeSlicing.resources: found an empty list, expected at least one resource",
        ),
        ("sharing: {timeSlicing: {}}", "1: sharing.timeSlicing: found none, expected the key resources"),
        (
            "sharing: {timeSlicing: {resources: [{replicas: 2}]}}",
            "1: sharing.timeSlicing.resources[0]: found none, expected the key name",
        ),
        (
            "sharing: {timeSlicing: {resources: [{name: example.com/gpu, replicas: 2}]}}",
            "1: sharing.timeSlicing.resources[0].name: found 'example.com/gpu', expected nvidia.com/ and a DNS",
        ),
        (
            f"sharing: {{timeSlicing: {{resources: [{{name: {'g' * 53}, replicas: 2}}]}}}}",
            "1: sharing.timeSlicing.resources[0].name: found 64 characters, expected at most 63",
        ),
        (
            "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, devices: some}]}}",
            "1: sharing.timeSlicing.resources[0].devices: found 'some', expected all, a count, or a list of",
        ),
        (
            "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, devices: [0, GPU-1]}]}}",
            "1: sharing.timeSlicing.resources[0].devices[1]: found 'GPU-1', expected an index (0)",
        ),
        (
            "sharing:\n  mps:\n    resources: []",
            "3: sharing.mps.resources: found an empty list, expected at least one resource",
        ),
        ("mps: {shmSize: 1}", "1: mps.shmSize: found an unknown key; did you mean shmSizeMib?"),
        (
            "health:\n  probationSecs: 5",
            "2: health.probationSecs: found an unknown key; did you mean probationSeconds?, expected one of ",
        ),
        (
            "health: {probationSeconds: .nan}",
            "1: health.probationSeconds: found '.nan', expected a number of seconds from 0 to 86400",
        ),
        (
            "health: {probationSeconds: -1}",
            "1: health.probationSeconds: found -1, expected a number of seconds from 0 to 86400",
        ),
        ("health: {cleanProbes: 2.5}", "1: health.cleanProbes: found 2.5, expected an integer from 1 to 1000"),
        ("health: {xids: {abc: {class: reset}}}", "1: health.xids.abc: found 'abc', expected an XID as the key"),
        (
            "health: {xids: {79: {class: fatal}}}",
            "1: health.xids.79.class: found 'fatal', expected notice, application, contained,",
        ),
        (
            "health: {xids: {79: {klass: reset}}}",
            "1: health.xids.79.klass: found an unknown key; did you mean class?, expected one of action, class, scope",
        ),
        ("health: {disabledXids: [79, x]}", "1: health.disabledXids: found 'x', expected XIDs, or all or xids"),
        ("labels: {}\nlabels: {}", "2: labels: found the key twice, expected it once"),
        ("health:\n  xids: {79: {}, 79: {}}", "2: health.xids.79: found the key twice, expected it once"),
        (
            '{"health": {"enabled": true,\n\n"enabled": true}}',
            "3: health.enabled: found the key twice, expected it once",
        ),
        ("a: [1\n", "1: column 6: not valid YAML: found the end of the text, expected a comma, or ] for"),
        (
            "a: !!python/object:os.system x",
            "1: found the tag tag:yaml.org,2002:python/object:os.syste, expected no tag",
        ),
        ("a: *b", "1: column 4: not valid YAML: found the alias *b, expected an anchor before it"),
        ("a: &a [*a]", "1: column 8: not valid YAML: found the alias *a, expected an anchor before it"),
        ("mps:\n  <<: {canary: false}", "2: mps.canary: found a merge key (<<), expected the keys themselves"),
        ("<<: {mps: {canary: false}}", "1: mps: found a merge key (<<), expected the keys themselves"),
        ("a: !!int x", "1: found 'x', expected what its tag says, an integer"),
        ("? [a]\n: b", "1: found a list as a key, expected a word"),
        ("a: \x01", "1: column 4: not valid YAML: found the character 0x1, expected text. Take it out"),
    ],
)
def test_a_mistake_gets_one_line_that_says_where_and_what(tmp_path: Path, text: str, line: str) -> None:
    said = mistake(tmp_path, text)
    assert said.startswith(line)
    assert "\n" not in said


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        ("all", "[0]", "all devices"),
        ("2", "all", "all devices"),
        ("2", "3", "the first devices"),
        ("[1, 0]", "1", "device 0"),
        ("[0, 1]", "[1]", "device 1"),
        ("['0:1']", "[0]", "device 0:1"),
        ("[0]", "['0:1']", "device 0:1"),
    ],
)
def test_of_entries_that_claim_the_same_device_the_first_counts_and_that_is_said(
    tmp_path: Path, first: str, second: str, shared: str
) -> None:
    entry = "    - {{name: gpu, replicas: 2, devices: {}}}\n"
    text = "sharing:\n  timeSlicing:\n    resources:\n" + entry.format(first) + entry.format(second)
    (warning,) = read(tmp_path, text).warnings
    assert warning.partition(":")[2] == (
        f"5: sharing.timeSlicing.resources[1]: {shared} of nvidia.com/gpu a second time: "
        "sharing.timeSlicing.resources[0] counts"
    )


def test_of_a_resource_named_twice_the_larger_number_counts(tmp_path: Path) -> None:
    text = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}, {name: gpu, replicas: 7}]}}"
    loaded = read(tmp_path, text)
    assert "this one's larger number counts" in loaded.warnings[0]
    settings = loaded.settings
    found = node([gpu(0), gpu(1)])
    (resource,) = plan(found, settings.layout).resources
    assert len(resource.devices) == 14
    assert plan(found, settings.layout).problems == ()


@pytest.mark.parametrize(
    ("written", "means"), [("4.0", 4), ("1e1", 10), ("0x4", 4), ("1_0", 10), ("010", 8), ("08", 8), ("0b11", 3)]
)
def test_whole_numbers_are_read_as_gos_yaml_reader_reads_them(tmp_path: Path, written: str, means: int) -> None:
    text = f"sharing: {{timeSlicing: {{resources: [{{name: gpu, replicas: {written}}}]}}}}"
    replication = read(tmp_path, text).settings.layout.replication
    assert replication is not None
    assert replication.resources[0].replicas == means


@pytest.mark.parametrize("written", ["4.5", "0o", "0x", "_4", "1e", "'4'", "1e400", "-3"])
def test_what_is_no_whole_number_there_is_none_here(tmp_path: Path, written: str) -> None:
    text = f"sharing: {{timeSlicing: {{resources: [{{name: gpu, replicas: {written}}}]}}}}"
    assert "expected an integer" in mistake(tmp_path, text)


def test_an_empty_list_of_devices_is_all_of_them(tmp_path: Path) -> None:
    loaded = read(tmp_path, "sharing: {timeSlicing: {resources: [{name: gpu, devices: [], replicas: 2}]}}")
    assert loaded.settings.layout.replication is not None
    assert loaded.settings.layout.replication.resources[0].devices.is_all
    assert "an empty list: read as all" in loaded.warnings[0]


@pytest.mark.parametrize("row", rows("config-keys"), ids=lambda row: row["name"])
def test_keys_of_nvidias_sections_are_read_as_nvidias_plugin_reads_them(tmp_path: Path, row: dict[str, Any]) -> None:
    if "refused" in row:
        assert row["refused"] in mistake(tmp_path, row["text"])
        return
    loaded = read(tmp_path, row["text"])
    found: Any = loaded.settings
    for part in row["setting"].split("."):
        found = getattr(found, part)
    assert (list(found) if isinstance(found, tuple) else found) == row["means"]
    assert [warning.split(": ", 2)[2] for warning in loaded.warnings] == row.get("warned", [])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("health: {ProbationSeconds: 5}", "found an unknown key; did you mean probationSeconds?"),
        ("logging: {Format: json}", "found an unknown key; did you mean format?"),
        ("layout: [{GPUs: [0], mode: whole}]", "found an unknown key"),
    ],
)
def test_our_own_sections_know_one_spelling(tmp_path: Path, text: str, said: str) -> None:
    assert said in mistake(tmp_path, text)


def test_the_name_of_a_section_of_ours_in_another_case_is_an_unknown_key(tmp_path: Path) -> None:
    loaded = read(tmp_path, "Health: {probationSeconds: 5}")
    assert loaded.settings.health.probation_s == 10
    assert loaded.warnings[0].endswith("Health: unknown key, ignored; did you mean health?")


def test_entries_for_different_devices_or_resources_stand_side_by_side(tmp_path: Path) -> None:
    entries = [
        "{name: gpu, replicas: 2, devices: [0]}",
        "{name: gpu, replicas: 4, devices: [1, '2:0']}",
        "{name: mig-1g.5gb, replicas: 2}",
    ]
    text = f"sharing: {{timeSlicing: {{resources: [{', '.join(entries)}]}}}}"
    replication = read(tmp_path, text).settings.layout.replication
    assert replication is not None
    assert len(replication.resources) == 3


def test_an_unknown_key_of_nvidias_is_a_warning_with_its_line(tmp_path: Path) -> None:
    loaded = read(tmp_path, "flags:\n  plugin:\n    passDeviceSpec: true\nfuture: {a: 1}\nhealht: {}\n")
    assert [line.split(":", 1)[1] for line in loaded.warnings] == [
        "3: flags.plugin.passDeviceSpec: unknown key, ignored; did you mean passDeviceSpecs?",
        "4: future: unknown key, ignored",
        "5: healht: unknown key, ignored; did you mean health?",
    ]


def test_our_sections_stand_beside_nvidias(tmp_path: Path) -> None:
    settings = read(
        tmp_path,
        """
health:
  probationSeconds: 0.5
  cleanProbes: 1
  unknownXids: application
  disabledXids: [63, 94]
  enabledXids: 13
  xids: {79: {class: reboot, action: call us}, 31: {scope: instance}}
logging: {format: json, level: debug}
labels: {enabled: false}
events: {enabled: no}
""",
    ).settings
    assert (settings.health.probation_s, settings.health.clean_probes) == (0.5, 1)
    assert settings.health.unknown_xids is FaultClass.APPLICATION
    assert settings.health.disabled_xids == frozenset({63, 94})
    assert settings.health.enabled_xids == frozenset({13})
    assert settings.health.xids[79] == XidOverride(fault_class=FaultClass.REBOOT, action="call us")
    assert (settings.logging.format, settings.logging.level) == ("json", "debug")
    assert not settings.labels.enabled
    assert not settings.events.enabled


@pytest.mark.parametrize(
    ("text", "expected_s"),
    [
        ("60s", 60),
        ("1h", 3600),
        ("1m30s", 90),
        ("500ms", 0.5),
        ("1.5h", 5400),
        ("infinite", float("inf")),
        ("5000000000", 5),
    ],
)
def test_sleep_intervals_are_gos(tmp_path: Path, text: str, expected_s: float) -> None:
    loaded = read(tmp_path, f"flags: {{gfd: {{sleepInterval: {text}}}}}")
    assert loaded.settings.labels.sleep_interval_s == expected_s


def test_a_missing_file_is_a_mistake_too(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="found no such file or directory, expected a readable file"):
        load(tmp_path / "none.yaml", {}, {})
