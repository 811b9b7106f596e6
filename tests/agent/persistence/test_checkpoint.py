"""The checkpoint comes back as it was saved, for the same boot and node; anything else is as none."""

import stat
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.persistence.statefiles import (
    CHECKPOINT,
    MAX_BYTES,
    VERSION,
    Checkpoint,
    load_checkpoint,
    read_boot_id,
    save_checkpoint,
)
from inventory.devices import GpuUuid, NodeName
from tests.support.inventory.builders import gpu, node, uuid

BOOT = "6f9f2a52-0000-0000-0000-000000000001"


def checkpoint(**changes: object) -> Checkpoint:
    cut = node([gpu(0), gpu(1, mig=["3g.20gb", "1g.5gb"]), gpu(2)])
    base = Checkpoint(version=VERSION, boot_id=BOOT, node=cut, energy_mj={uuid(0): 12, uuid(2): 5})
    return msgspec.structs.replace(base, **changes)


def put(folder: Path, content: bytes) -> None:
    (folder / CHECKPOINT).write_bytes(content)


def found(folder: Path, node_name: str = "node-a") -> Checkpoint | None:
    return load_checkpoint(folder, node_name=node_name)


def test_it_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "new", checkpoint())
    assert found(tmp_path / "new") == checkpoint()


def test_it_is_for_its_owner_alone(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, checkpoint())
    assert stat.S_IMODE((tmp_path / CHECKPOINT).stat().st_mode) == 0o600


def test_none_is_there_at_first(tmp_path: Path) -> None:
    assert found(tmp_path) is None
    assert found(tmp_path / "missing") is None


def test_another_nodes_is_ignored(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, checkpoint())
    assert found(tmp_path, "node-b") is None


def test_its_node_may_be_served_in_the_same_boot_only() -> None:
    assert checkpoint().is_of_boot(BOOT)
    assert not checkpoint().is_of_boot("another")


def test_one_of_an_unknown_boot_never_fits() -> None:
    assert not checkpoint(boot_id="").is_of_boot("")


def test_one_of_another_version_is_ignored(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, checkpoint(version=VERSION + 1))
    assert found(tmp_path) is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"null",
        b"\x00" * 100,
        b"[" * 100_000,
        b'{"version": 1, "x": ' + b"[" * 100_000,
        b'{"version": 1, "boot_id": "\xff\xfe", "node": {"name": "node-a"}}',
        b'{"version": 1e999, "boot_id": "a", "node": {"name": "node-a"}}',
        b'{"version": 1, "boot_id": 7, "node": {"name": "node-a"}}',
    ],
    ids=["empty", "null", "zeros", "deep", "deep-unknown-key", "not-utf8", "not-a-number", "wrong-type"],
)
def test_a_broken_file_is_ignored_with_one_warning(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path, content)
    assert found(tmp_path) is None
    assert [record.getMessage() for record in caplog.records] == ["state file ignored"]


def test_a_file_beyond_the_limit_is_ignored(tmp_path: Path) -> None:
    put(tmp_path, b" " * MAX_BYTES + msgspec.json.encode(checkpoint()))
    assert found(tmp_path) is None


def test_a_node_that_contradicts_itself_is_ignored(tmp_path: Path) -> None:
    whole = checkpoint().node
    save_checkpoint(tmp_path, checkpoint(node=msgspec.structs.replace(whole, gpus=(whole.gpus[0],) * 3)))
    assert found(tmp_path) is None
    save_checkpoint(tmp_path, checkpoint(node=msgspec.structs.replace(whole, links=())))
    assert found(tmp_path) is None


@given(st.data())
def test_a_file_cut_or_altered_anywhere_is_a_checkpoint_or_none(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("state")
    content = bytearray(msgspec.json.encode(checkpoint()))
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    put(folder, bytes(content[: data.draw(st.integers(0, len(content)))]))
    again = found(folder)
    assert again is None or again.node.name == NodeName("node-a")


def test_the_boot_id_is_read_from_proc(tmp_path: Path) -> None:
    assert read_boot_id(tmp_path) == ""
    path = tmp_path / "sys/kernel/random/boot_id"
    path.parent.mkdir(parents=True)
    path.write_text(f"{BOOT}\n")
    assert read_boot_id(tmp_path) == BOOT


def test_energy_is_kept_by_gpu(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, checkpoint(energy_mj={GpuUuid("GPU-x"): 2**53}))
    again = found(tmp_path)
    assert again is not None
    assert again.energy_mj == {"GPU-x": 2**53}
