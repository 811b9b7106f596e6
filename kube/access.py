"""The way in which a daemon reaches its API server: by the kubeconfig that its flags name, or as a pod."""

import os
from collections.abc import Mapping
from pathlib import Path

from kube.config import ClusterConfig, in_cluster


def load(kubeconfig: str | None, *, environ: Mapping[str, str] = os.environ) -> ClusterConfig:
    """The kubeconfig file where one is named, else the pod's service account. Raises ConfigError.

    Logins (``exec``, OIDC) are refused: a daemon must not depend on a person's login tools.
    """
    if kubeconfig is None:
        return in_cluster(environ=environ)
    # The import is made here: a pod never pays for the reader.
    from kube.kubeconfig import from_kubeconfig

    return from_kubeconfig(Path(kubeconfig))
