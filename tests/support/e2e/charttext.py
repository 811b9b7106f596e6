"""What the chart renders, as text."""

import subprocess
from pathlib import Path
from typing import Final

from hack.cluster.programs import binaries
from tests.support.e2e.kubernetes import POLICIES

CHART: Final = Path(__file__).parents[3] / "charts" / "tessera"
NAMESPACE: Final = "tessera-system"
_POLICIES: Final = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"


def rendered(
    *templates: str,
    values: tuple[str, ...] = (),
    files: tuple[Path, ...] = (),
    served: tuple[str, ...] = (),
    policies: bool = POLICIES,
) -> str:
    """Of a release called ``t``; without ``templates`` all of it but hooks.

    The API server serves what Helm takes for granted and what is ``served``; ``policies``: MutatingAdmissionPolicies
    too.
    """
    command = [str(binaries.binary("helm")), "template", "t", str(CHART), "--namespace", NAMESPACE]
    kinds = (*((_POLICIES,) if policies else ()), *served)
    command += [word for kind in kinds for word in ("--api-versions", kind)]
    command += [word for name in templates for word in ("--show-only", f"templates/{name}.yaml")] or ["--no-hooks"]
    command += [word for file in files for word in ("--values", str(file))]
    command += [word for value in values for word in ("--set", value)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout
