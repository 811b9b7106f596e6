"""Regenerate ``kubeletapi/`` from ``proto/``: ``python -m hack.proto [OUT]`` (default: the repository itself).

A test runs this into an empty folder and compares, so stale stubs cannot land.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def generate(out: Path) -> None:
    """Write ``kubeletapi/*_pb2*.py`` and their ``.pyi`` below ``out``. Raises SystemExit when protoc refuses."""
    from grpc_tools import protoc

    sources = sorted(str(path.relative_to(ROOT / "proto")) for path in (ROOT / "proto").rglob("*.proto"))
    args = ["protoc", f"-I{ROOT / 'proto'}"]
    args += [f"--{kind}_out={out}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc")]
    if protoc.main([*args, *sources]) != 0:
        raise SystemExit("protoc failed; see above")


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
