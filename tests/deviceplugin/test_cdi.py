"""CDI specs: of the shape that runtimes accept, and with a device behind every name that an answer uses."""

from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from deviceplugin.answer import CDI_VENDOR, answer
from deviceplugin.cdi import Spec, device_names, file_name, gpu_spec, rename_kind, specs
from deviceplugin.drivermounts import HOOKS, DriverFiles, HookProgram, Library, chosen_hooks, driver_edits
from deviceplugin.strategy import (
    AllocationSpec,
    DeviceAccess,
    DeviceIdStrategy,
    DeviceListStrategy,
    DeviceNode,
    NodeAccess,
    Symlink,
)
from inventory.layout.layout import LogicalDevice
from tests.deviceplugin.test_answer import DEVICES, SPECS
from tests.support.deviceplugin.views import EXTRAS, access_of, mixture, null_node
from tests.support.inventory.builders import instances, whole

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

EXTRA_FILES = st.sets(st.sampled_from(sorted(EXTRAS))).map(lambda found: {cls: EXTRAS[cls] for cls in found})
CDI_HOOK = HookProgram("/usr/bin/nvidia-cdi-hook")
CUDA = Library(
    "/run/driver/usr/lib64/libcuda.so.535.1",
    "/usr/lib64",
    "libcuda.so.535.1",
    (
        Symlink("/usr/lib64/libcuda.so", "libcuda.so.1"),
        Symlink("/usr/lib64/libcuda.so.1", "libcuda.so.535.1"),
    ),
)
DRIVER = DriverFiles("535.1", "/usr/lib64", (CUDA,), (("/run/driver/usr/bin/nvidia-smi", "/usr/bin/nvidia-smi"),))
DRIVERS = st.builds(
    structs.replace,
    st.sampled_from([DriverFiles(), DRIVER]),
    hook=st.none()
    | st.builds(
        HookProgram,
        st.just(CDI_HOOK.path),
        st.lists(st.sampled_from(HOOKS), min_size=1, unique=True).map(tuple),
    ),
    machine=st.sampled_from(["x86_64", "aarch64", "riscv64"]),
)


def as_written(document: Spec) -> dict[str, Any]:
    return msgspec.json.decode(msgspec.json.encode(document), type=dict[str, Any])


def edits_of(document: Spec, name: str) -> Any:
    return next(device["containerEdits"] for device in document["devices"] if device["name"] == name)


@given(SPECS, DEVICES, DRIVERS, EXTRA_FILES)
def test_every_spec_is_one_that_a_runtime_accepts(
    spec: AllocationSpec,
    devices: list[LogicalDevice],
    driver: DriverFiles,
    extra: dict[str, tuple[DeviceNode, ...]],
) -> None:
    for name, document in specs(spec, access_of(devices, extras=extra), driver).items():
        if not document["devices"]:
            continue  # no file is written
        VALIDATOR.validate(as_written(document))
        assert name == f"{document['kind'].replace('/', '-')}.json"


@given(SPECS, DEVICES, EXTRA_FILES)
def test_every_name_in_an_answer_is_a_device_of_a_spec(
    spec: AllocationSpec, devices: list[LogicalDevice], extra: dict[str, tuple[DeviceNode, ...]]
) -> None:
    access = access_of(devices, extras=extra)
    told = answer(spec, access, devices, "token")
    names = [*told.cdi_devices, *(name for value in told.annotations.values() for name in value.split(","))]
    documents = specs(spec, access, DriverFiles())
    defined = {f"{document['kind']}={name}" for document in documents.values() for name in device_names(document)}
    assert set(names) <= defined
    assert bool(names) == bool(documents) == spec.uses_cdi


def test_without_a_cdi_strategy_no_spec_is_made() -> None:
    spec = AllocationSpec(strategies=(DeviceListStrategy.ENVVAR, DeviceListStrategy.VOLUME_MOUNTS), gds=True)
    assert specs(spec, access_of(mixture()), DriverFiles()) == {}


def test_a_gpu_brings_its_own_node_and_an_instance_its_capabilities_too() -> None:
    document = gpu_spec(AllocationSpec(), access_of([whole(0), *instances(1, 1)]), DriverFiles())
    assert edits_of(document, "GPU-00")["deviceNodes"] == [
        {"path": "/dev/nvidia0", "hostPath": "/host/dev/nvidia0", "permissions": "rwm"}
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
        "deviceNodes": [{"path": "/dev/nvidiactl", "hostPath": "/host/dev/nvidiactl", "permissions": "rwm"}],
    }


def test_a_node_at_the_same_path_on_the_host_needs_no_host_path() -> None:
    access = access_of([])
    document = gpu_spec(
        AllocationSpec(),
        type(access)(shared_nodes=(DeviceNode("/dev/nvidiactl", "/dev/nvidiactl"),)),
        DriverFiles(),
    )
    assert document["containerEdits"]["deviceNodes"] == [{"path": "/dev/nvidiactl", "permissions": "rwm"}]


def test_index_strategy_names_the_devices_of_the_spec() -> None:
    spec = AllocationSpec(device_id=DeviceIdStrategy.INDEX)
    assert device_names(gpu_spec(spec, access_of([whole(2), *instances(1, 2)]), DriverFiles())) == {"2", "1:0", "1:1"}


def test_display_files_come_with_their_gpu_and_their_links_by_the_hook() -> None:
    links = (Symlink("/dev/dri/by-path/pci-0000:01:00.0-card", "../card0"),)
    own = DeviceAccess("0", (null_node("/dev/nvidia0"),), (null_node("/dev/dri/card0"),), links)
    access = NodeAccess({"GPU-00": own})
    hooked = edits_of(gpu_spec(AllocationSpec(), access, DriverFiles(hook=CDI_HOOK)), "GPU-00")
    assert [node["path"] for node in hooked["deviceNodes"]] == ["/dev/nvidia0", "/dev/dri/card0"]
    assert [hook["args"] for hook in hooked["hooks"]] == [
        ["nvidia-cdi-hook", "create-symlinks", "--link", "../card0::/dev/dri/by-path/pci-0000:01:00.0-card"]
    ]
    assert "hooks" not in edits_of(gpu_spec(AllocationSpec(), access, DriverFiles()), "GPU-00")


# The driver.


def mounted(driver: DriverFiles) -> dict[str, str]:
    """Container path to host path."""
    return {one["containerPath"]: one["hostPath"] for one in driver_edits(driver).get("mounts", ())}


def called(driver: DriverFiles) -> list[list[str]]:
    return [hook["args"] for hook in driver_edits(driver).get("hooks", ())]


def test_with_the_hook_program_files_are_mounted_and_its_hooks_do_the_rest() -> None:
    driver = structs.replace(DRIVER, hook=CDI_HOOK)
    assert mounted(driver) == {
        "/usr/lib64/libcuda.so.535.1": CUDA.host_path,
        "/usr/bin/nvidia-smi": "/run/driver/usr/bin/nvidia-smi",
    }
    links = ["--link", "libcuda.so.1::/usr/lib64/libcuda.so", "--link", "libcuda.so.535.1::/usr/lib64/libcuda.so.1"]
    assert called(driver) == [
        ["nvidia-cdi-hook", "create-symlinks", *links],
        ["nvidia-cdi-hook", "enable-cuda-compat", "--host-driver-version=535.1"],
        ["nvidia-cdi-hook", "update-ldcache", "--folder", "/usr/lib64"],
        ["nvidia-cdi-hook", "disable-device-node-modification"],
        ["nvidia-cdi-hook", "update-application-profile"],
    ]
    edits = driver_edits(driver)
    assert {hook["hookName"] for hook in edits["hooks"]} == {"createContainer"}
    assert edits["mounts"][0]["options"] == ["ro", "nosuid", "nodev", "rbind", "rprivate"]
    assert edits["env"] == ["NVIDIA_CTK_LIBCUDA_DIR=/usr/lib64"]


def test_without_it_every_name_is_a_mount_where_loaders_of_both_families_look() -> None:
    assert called(DRIVER) == []
    assert mounted(DRIVER).keys() == {
        "/usr/lib64/libcuda.so",
        "/usr/lib64/libcuda.so.1",
        "/usr/lib64/libcuda.so.535.1",
        "/usr/lib/x86_64-linux-gnu/libcuda.so",
        "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
        "/usr/bin/nvidia-smi",
    }
    assert {host for inside, host in mounted(DRIVER).items() if "/lib" in inside} == {CUDA.host_path}


@pytest.mark.parametrize("folder", ["/usr/lib/aarch64-linux-gnu", "/lib/aarch64-linux-gnu"])
def test_a_folder_that_a_family_searches_anyway_is_not_doubled(folder: str) -> None:
    library = Library("/x/libcuda.so.1.2", folder, "libcuda.so.1.2")
    driver = DriverFiles("1.2", folder, (library,), machine="aarch64")
    assert mounted(driver).keys() == {f"{folder}/libcuda.so.1.2", "/usr/lib64/libcuda.so.1.2"}


def test_a_hook_that_is_not_to_be_asked_has_its_stand_in() -> None:
    hook = HookProgram(CDI_HOOK.path, ("update-ldcache",))
    driver = structs.replace(DRIVER, hook=hook)
    assert [words[1] for words in called(driver)] == ["update-ldcache"]
    assert "/usr/lib64/libcuda.so" in mounted(driver)
    assert "/usr/lib/x86_64-linux-gnu/libcuda.so" not in mounted(driver)


@pytest.mark.parametrize(
    ("known", "disabled", "chosen"),
    [
        (HOOKS, (), HOOKS),
        (HOOKS, ("all",), ()),
        (HOOKS, HOOKS[1:3], (HOOKS[0], *HOOKS[3:])),
        (("update-ldcache",), (), ("update-ldcache",)),
    ],
)
def test_hooks_are_those_that_the_program_knows_and_nobody_switched_off(
    known: tuple[str, ...], disabled: tuple[str, ...], chosen: tuple[str, ...]
) -> None:
    assert chosen_hooks(known, disabled) == chosen


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/usr/bin/nvidia-ctk", ["nvidia-ctk", "hook", "update-ldcache"]),
        ("/opt/nvidia-cdi-hook", ["nvidia-cdi-hook", "update-ldcache"]),
    ],
)
def test_the_hook_is_called_as_its_program_wants(path: str, words: list[str]) -> None:
    call = HookProgram(path).call("update-ldcache", ())
    assert (call["path"], call["args"]) == (path, words)


def test_what_this_host_lacks_is_no_device_so_that_no_file_says_otherwise() -> None:
    spec = AllocationSpec(strategies=(DeviceListStrategy.CDI_CRI,), gdrcopy=True, imex_channels=(0, 1))
    extra = {"imex-channel": (null_node("/dev/nvidia-caps-imex-channels/channel1"),)}
    documents = specs(spec, access_of([whole(0)], extras=extra), DriverFiles())
    assert device_names(documents[file_name("gdrcopy")]) == set()
    channels = documents[file_name("imex-channel")]
    assert device_names(channels) == {"1"}
    assert edits_of(channels, "1")["deviceNodes"][0]["path"] == "/dev/nvidia-caps-imex-channels/channel1"


def test_a_generated_spec_is_taken_as_it_is_under_our_kind() -> None:
    generated = {"cdiVersion": "0.7.0", "kind": "nvidia.com/gpu", "devices": [{"name": "0"}], "containerEdits": {}}
    assert rename_kind(generated, "gpu") == generated | {"kind": f"{CDI_VENDOR}/gpu"}
