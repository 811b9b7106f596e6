"""CDI specs: of the shape that runtimes accept, and with a device behind every name that an answer uses."""

from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deviceplugin.answer import CDI_VENDOR, answer
from deviceplugin.cdi import (
    DriverFiles,
    Spec,
    device_names,
    file_name,
    gpu_spec,
    imex_channel_path,
    rename_kind,
    specs,
)
from deviceplugin.strategy import AllocationSpec, DeviceIdStrategy, DeviceListStrategy, DeviceNode
from inventory.layout import LogicalDevice
from tests.deviceplugin.builders import access_of, mixture, null_node
from tests.deviceplugin.test_answer import DEVICES, SPECS
from tests.inventory.builders import instances, whole

# The CDI specification's JSON form at version 0.5.0, as much of it as a device plugin writes. Two rules of its prose
# are added that runtimes enforce: at least one device, and no device without edits.
STRINGS = {"type": "array", "items": {"type": "string", "minLength": 1}}
PATH = {"type": "string", "pattern": "^/"}
DEVICE_NODE = {
    "type": "object",
    "additionalProperties": False,
    "required": ["path"],
    "properties": {
        "path": PATH,
        "hostPath": PATH,
        "type": {"enum": ["b", "c", "u", "p"]},
        "major": {"type": "integer"},
        "minor": {"type": "integer"},
        "fileMode": {"type": "integer"},
        "permissions": {"type": "string", "pattern": "^[rwm]+$"},
        "uid": {"type": "integer", "minimum": 0},
        "gid": {"type": "integer", "minimum": 0},
    },
}
MOUNT = {
    "type": "object",
    "additionalProperties": False,
    "required": ["hostPath", "containerPath"],
    "properties": {"hostPath": PATH, "containerPath": PATH, "options": STRINGS, "type": {"type": "string"}},
}
HOOK = {
    "type": "object",
    "additionalProperties": False,
    "required": ["hookName", "path"],
    "properties": {
        "hookName": {"enum": ["createRuntime", "createContainer", "startContainer", "poststart", "poststop"]},
        "path": PATH,
        "args": STRINGS,
        "env": STRINGS,
        "timeout": {"type": "integer"},
    },
}
EDITS = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "env": {"type": "array", "items": {"type": "string", "pattern": "^[^=]+="}},
        "deviceNodes": {"type": "array", "items": DEVICE_NODE, "minItems": 1},
        "mounts": {"type": "array", "items": MOUNT, "minItems": 1},
        "hooks": {"type": "array", "items": HOOK, "minItems": 1},
    },
}
SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["cdiVersion", "kind", "devices"],
    "properties": {
        "cdiVersion": {"const": "0.5.0"},
        "kind": {"type": "string", "pattern": r"^[A-Za-z0-9][\w.-]*[A-Za-z0-9]/[A-Za-z][\w-]*[A-Za-z0-9]$"},
        "annotations": {"type": "object"},
        "containerEdits": EDITS,
        "devices": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["name", "containerEdits"],
                "properties": {
                    "name": {"type": "string", "pattern": r"^[A-Za-z0-9]([\w.:-]*[A-Za-z0-9])?$"},
                    "containerEdits": EDITS | {"minProperties": 1},
                },
            },
        },
    },
}
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)

HOST_FILES = st.fixed_dictionaries(
    {
        "gdrcopy": st.sampled_from([(), (null_node("/dev/gdrdrv"),)]),
        "gds": st.sampled_from([(), (null_node("/dev/nvidia-fs0"),)]),
        "mofed": st.just(()),
        "imex-channel": st.sampled_from([(), (null_node(imex_channel_path(0)),)]),
    }
)
DRIVERS = st.sampled_from(
    [
        DriverFiles(),
        DriverFiles(mounts=(("/run/driver/usr/lib/libcuda.so.1", "/usr/lib/libcuda.so.1"),)),
        DriverFiles(
            mounts=(("/usr/lib/libcuda.so.1", "/usr/lib/libcuda.so.1"),),
            library_folders=("/usr/lib",),
            hook_path="/usr/bin/nvidia-cdi-hook",
        ),
    ]
)


def as_written(document: Spec) -> dict[str, Any]:
    return msgspec.json.decode(msgspec.json.encode(document), type=dict[str, Any])


def edits_of(document: Spec, name: str) -> Any:
    return next(device["containerEdits"] for device in document["devices"] if device["name"] == name)


@given(SPECS, DEVICES, DRIVERS, HOST_FILES)
def test_every_spec_is_one_that_a_runtime_accepts(
    spec: AllocationSpec,
    devices: list[LogicalDevice],
    driver: DriverFiles,
    extra: dict[str, tuple[DeviceNode, ...]],
) -> None:
    for name, document in specs(spec, access_of(devices), driver, extra).items():
        VALIDATOR.validate(as_written(document))
        assert name == f"{document['kind'].replace('/', '-')}.json"


@given(SPECS, DEVICES, HOST_FILES)
def test_every_name_in_an_answer_is_a_device_of_a_spec(
    spec: AllocationSpec, devices: list[LogicalDevice], extra: dict[str, tuple[DeviceNode, ...]]
) -> None:
    access = access_of(devices)
    told = answer(spec, access, devices, "token")
    names = [*told.cdi_devices, *(name for value in told.annotations.values() for name in value.split(","))]
    documents = specs(spec, access, DriverFiles(), extra)
    defined = {f"{document['kind']}={name}" for document in documents.values() for name in device_names(document)}
    assert set(names) <= defined
    assert bool(names) == bool(documents) == spec.uses_cdi


def test_without_a_cdi_strategy_no_spec_is_made() -> None:
    spec = AllocationSpec(strategies=(DeviceListStrategy.ENVVAR, DeviceListStrategy.VOLUME_MOUNTS), gds=True)
    assert specs(spec, access_of(mixture()), DriverFiles(), {}) == {}


def test_a_gpu_brings_its_own_node_and_an_instance_its_capabilities_too() -> None:
    document = gpu_spec(AllocationSpec(), access_of([whole(0), *instances(1, 1)]), DriverFiles())
    assert edits_of(document, "GPU-00")["deviceNodes"] == [
        {"path": "/dev/nvidia0", "hostPath": "/host/dev/nvidia0", "permissions": "rw"}
    ]
    assert [node["path"] for node in edits_of(document, "MIG-01-0")["deviceNodes"]] == [
        "/dev/nvidia1",
        "/dev/nvidia-caps/nvidia-cap101",
        "/dev/nvidia-caps/nvidia-cap102",
    ]


def test_shared_nodes_come_with_any_device_and_the_legacy_hook_is_kept_out() -> None:
    document = gpu_spec(AllocationSpec(), access_of([whole(0)]), DriverFiles())
    assert document["containerEdits"] == {
        "env": ["NVIDIA_VISIBLE_DEVICES=void"],
        "deviceNodes": [{"path": "/dev/nvidiactl", "hostPath": "/host/dev/nvidiactl", "permissions": "rw"}],
    }


def test_a_node_at_the_same_path_on_the_host_needs_no_host_path() -> None:
    access = access_of([])
    document = gpu_spec(
        AllocationSpec(),
        type(access)(shared_nodes=(DeviceNode("/dev/nvidiactl", "/dev/nvidiactl"),)),
        DriverFiles(),
    )
    assert document["containerEdits"]["deviceNodes"] == [{"path": "/dev/nvidiactl", "permissions": "rw"}]


def test_index_strategy_names_the_devices_of_the_spec() -> None:
    spec = AllocationSpec(device_id=DeviceIdStrategy.INDEX)
    assert device_names(gpu_spec(spec, access_of([whole(2), *instances(1, 2)]), DriverFiles())) == {"2", "1:0", "1:1"}


def test_libraries_are_mounted_read_only_and_made_known_to_the_loader() -> None:
    driver = DriverFiles(
        mounts=(("/run/driver/usr/lib64/libcuda.so.1", "/usr/lib64/libcuda.so.1"),),
        library_folders=("/usr/lib64",),
        hook_path="/usr/bin/nvidia-cdi-hook",
    )
    edits = gpu_spec(AllocationSpec(), access_of([whole(0)]), driver)["containerEdits"]
    assert edits["mounts"] == [
        {
            "hostPath": "/run/driver/usr/lib64/libcuda.so.1",
            "containerPath": "/usr/lib64/libcuda.so.1",
            "options": ["ro", "nosuid", "nodev", "rbind", "rprivate"],
        }
    ]
    assert edits["hooks"] == [
        {
            "hookName": "createContainer",
            "path": "/usr/bin/nvidia-cdi-hook",
            "args": ["nvidia-cdi-hook", "update-ldcache", "--folder", "/usr/lib64"],
        }
    ]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/usr/bin/nvidia-ctk", ["nvidia-ctk", "hook", "update-ldcache"]),
        ("/opt/nvidia-cdi-hook", ["nvidia-cdi-hook", "update-ldcache"]),
    ],
)
def test_the_hook_is_called_as_its_program_wants(path: str, words: list[str]) -> None:
    driver = DriverFiles(library_folders=("/usr/lib",), hook_path=path)
    hook = gpu_spec(AllocationSpec(), access_of([whole(0)]), driver)["containerEdits"]["hooks"][0]
    assert hook["args"][: len(words)] == words


def test_what_this_host_lacks_is_still_a_device_but_asks_for_no_file() -> None:
    spec = AllocationSpec(strategies=(DeviceListStrategy.CDI_CRI,), gdrcopy=True, imex_channels=(0, 1))
    extra = {"imex-channel": (null_node(imex_channel_path(1)),)}
    documents = specs(spec, access_of([whole(0)]), DriverFiles(), extra)
    assert "deviceNodes" not in edits_of(documents[file_name("gdrcopy")], "all")
    channels = documents[file_name("imex-channel")]
    assert "deviceNodes" not in edits_of(channels, "0")
    assert edits_of(channels, "1")["deviceNodes"][0]["path"] == "/dev/nvidia-caps-imex-channels/channel1"


def test_a_generated_spec_is_taken_as_it_is_under_our_kind() -> None:
    generated = {"cdiVersion": "0.7.0", "kind": "nvidia.com/gpu", "devices": [{"name": "0"}], "containerEdits": {}}
    assert rename_kind(generated, "gpu") == generated | {"kind": f"{CDI_VENDOR}/gpu"}
