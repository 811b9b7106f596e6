"""What the deciding process holds in memory before it has served anybody: modules are most of a small controller."""

import subprocess
import sys
from typing import Final

SERVING: Final = (
    "controller.insight.simulation",
    "controller.people.visibility",
    "controller.people.page",
    "controller.cluster.webhooks",
)
"""Imported where they are started: with the web part, and with webhooks."""
LARGE: Final = ("cryptography", "kubernetes", "cli")
"""9 and 18 MiB, and what a daemon has no use for."""


def test_the_core_alone_imports_nothing_that_serves_users_or_the_api_server() -> None:
    words = "import controller.main, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "controller.cluster.process.process" in loaded
    found = {name for name in loaded if any(name == each or name.startswith(f"{each}.") for each in (*SERVING, *LARGE))}
    assert found == set()
