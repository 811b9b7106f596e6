"""Which kubeconfig file a command reads where none is named."""

import os
from pathlib import Path


def default_kubeconfig() -> str:
    """The first file of $KUBECONFIG, as kubectl writes to it, else ~/.kube/config."""
    named = [path for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    return named[0] if named else str(Path.home() / ".kube" / "config")
