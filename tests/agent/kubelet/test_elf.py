"""A library's own name, out of its file; whatever else the file holds."""

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.kubelet.elf import soname
from tests.support.agent.hosts import elf

WHOLE = elf("libcuda.so.1")


def test_a_library_says_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "lib").write_bytes(WHOLE)
    assert soname(tmp_path / "lib") == "libcuda.so.1"


def test_what_is_no_library_has_none(tmp_path: Path) -> None:
    (tmp_path / "script").write_text("#!/bin/sh\n")
    assert soname(tmp_path / "script") is None
    assert soname(tmp_path) is None
    assert soname(tmp_path / "absent") is None


def test_a_name_with_a_path_in_it_is_none(tmp_path: Path) -> None:
    (tmp_path / "lib").write_bytes(elf("../libcuda.so.1"))
    assert soname(tmp_path / "lib") is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, len(WHOLE) - 1), st.binary(max_size=16), st.booleans())
def test_no_damage_to_the_file_is_more_than_a_missing_or_another_name(
    tmp_path: Path, at: int, junk: bytes, cut: bool
) -> None:
    path = tmp_path / "lib"
    path.write_bytes(WHOLE[:at] + junk + (b"" if cut else WHOLE[at + len(junk) :]))
    name = soname(path)
    assert name is None or (name and "/" not in name)
