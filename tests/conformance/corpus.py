"""Where the shared corpus lies, and its files as Python data.

Absent data is an error: a skipped conformance run proves nothing.
"""

import json
import os
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def folder(name: str) -> Path:
    """The folder ``corpus/<name>`` under ``$TESSERA_SHARED``, by default under ``../shared`` beside the checkout."""
    shared = Path(os.environ.get("TESSERA_SHARED") or ROOT.parent / "shared")
    found = shared / "corpus" / name
    if not found.is_dir():
        raise FileNotFoundError(
            f"conformance data not found: {found} is no folder; "
            f"set TESSERA_SHARED to the folder that holds corpus/{name}"
        )
    return found


def load(name: str, file: str) -> Any:
    return json.loads((folder(name) / file).read_text(encoding="utf-8"))
