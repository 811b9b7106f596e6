"""The nets. Each module is a program: it runs the product of its own tree and judges what can be seen from outside.

stdout has a line of JSON for each finding, ``{"net": ..., "message": ...}``. Exit code 0: none, 1: some, anything else:
the program could not judge. ``net`` is one of:

    history    the judge of ``history/`` over a record of what the API server, kubelets and the hardware said
    hardware   what the GPUs are, asked of the simulated NVML beside the agent
    kubelet    what a kubelet was told of devices and what its pods were given
    account    what another account is answered
"""

import json
from collections.abc import Sequence


def reported(net: str, messages: Sequence[str]) -> int:
    """Print the findings of ``net``; the exit code is returned."""
    for each in messages:
        print(json.dumps({"net": net, "message": each}))
    return 1 if messages else 0
