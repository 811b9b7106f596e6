"""What NVIDIA's programs answer, as data: one file for each question, one row for each case."""

from pathlib import Path
from typing import Any

import yaml


def rows(name: str) -> list[dict[str, Any]]:
    """The rows of ``NAME.yaml`` beside this file."""
    found: list[dict[str, Any]] = yaml.load((Path(__file__).parent / f"{name}.yaml").read_text(), yaml.CSafeLoader)
    assert found, name
    return found
