"""The generated stubs are what ``proto/`` says."""

import os
import sys
from pathlib import Path

import pytest

from hack import proto


def test_the_stubs_are_what_protoc_makes_of_the_proto_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    proto.generate(tmp_path)
    fresh = {path.name: path.read_text() for path in (tmp_path / "kubeletapi").iterdir()}
    kept = {path.name: path.read_text() for path in (proto.ROOT / "kubeletapi").glob("*_pb2*.py*")}
    assert kept == fresh, "stale stubs: run `make proto`"
