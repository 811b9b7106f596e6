"""The kubeconfig files that a command reads where none is named."""

import os
from pathlib import Path


def default_kubeconfigs() -> tuple[Path, ...]:
    """The files of $KUBECONFIG that exist, as kubectl passes over the others, or all where none does; without the
    variable ~/.kube/config.
    """
    named = tuple(Path(path) for path in dict.fromkeys(os.environ.get("KUBECONFIG", "").split(os.pathsep)) if path)
    return tuple(path for path in named if path.exists()) or named or (Path.home() / ".kube" / "config",)
