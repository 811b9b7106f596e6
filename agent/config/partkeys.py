"""The keys of the sections ``mps`` and ``mig``, as rows of the table of settings: path, target, parser, default,
meaning, and a flag where the chart sets it.
"""

from agent.config.settings import MigManager
from inventory.layout.entries import WhenBusy
from yamlfile.parsers import BOOL, PATH, Parser, integer, one_of, seconds

KEYS: tuple[tuple[str, str, Parser, str, str, str], ...] = (
    (
        "mps.controlProgram",
        "mps.control_program",
        PATH,
        "nvidia-cuda-mps-control",
        "the MPS control program, or its path",
        "",
    ),
    ("mps.multiUser", "mps.multi_user", BOOL, "false", "one MPS server for the clients of all users, as root", ""),
    ("mps.canary", "mps.canary", BOOL, "true", "false: an MPS daemon is ready without a CUDA client's trial", ""),
    ("mps.privateShm", "mps.private_shm", BOOL, "true", "false: MPS clients get the agent's own /dev/shm folder", ""),
    (
        "mps.shmSizeMib",
        "mps.shm_size_mib",
        integer(16, 1 << 22),
        "half the memory",
        "size of an MPS device's tmpfs",
        "",
    ),
    ("mps.probeIntervalSeconds", "mps.probe_interval_s", seconds(0.1, 3600), "10", "how often a daemon is asked", ""),
    (
        "mig.configFile",
        "mig.config_file",
        PATH,
        "configurations made from the hardware",
        "mig-parted's configuration file: the node's label nvidia.com/mig.config chooses from it",
        "--mig-config-file",
    ),
    (
        "mig.manager",
        "mig.manager",
        one_of(MigManager),
        "auto",
        (
            "agent: without a file the agent follows that label also where the GPU Operator marks the node for NVIDIA's"
            " MIG manager (auto: not there)"
        ),
        "--mig-manager",
    ),
    (
        "mig.whenBusy",
        "mig.when_busy",
        one_of(WhenBusy),
        "refuse",
        "what that label's change does where pods hold what has to go",
        "",
    ),
)
