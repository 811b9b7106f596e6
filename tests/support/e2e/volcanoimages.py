"""Images for Volcano's Jobs, made on the spot under the names that manifests have.

One root file system serves all of them: Python, Open MPI and OpenSSH of Debian's packages, and programs that meet each
other as frameworks do, by the variables and names that the plugins bring.
"""

import platform
from pathlib import Path
from typing import Final

from hack.cluster.nodes.node import NodeHost
from hack.cluster.programs import debian, images

TAGS: Final = (
    "docker.io/pytorch/pytorch:2.1-cuda12.1",
    "registry.example/mpi:1",
    "registry.example/finetune:1",
)
"""Of the article and of the examples, in full, as containerd looks for them."""
WAITING: Final = "docker.io/library/busybox:1.36.1"
"""Of the container that waits for a master, unless an argument names another."""
RELEASE: Final = "/tmp/release"
"""A file in a master's container: with the variable HELD it trains until the file is there."""
_PACKAGES: Final = ("openmpi-bin", "python3-mpi4py", "openssh-server", "openssh-client", "python3", "dash", "coreutils")
_USERS: Final = b"root:x:0:0:root:/root:/bin/sh\nsshd:x:100:65534::/run/sshd:/usr/sbin/nologin\n"

_LAUNCH: Final = b'''\
"""In place of torch.distributed.launch: it says what it was started with, and runs until it is told to end."""
import signal
import sys

ENDS = {signal.SIGTERM}
signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)
print(*sys.argv[1:], flush=True)
signal.sigwait(ENDS)
'''
_ALLREDUCE: Final = b"""\
import os

from mpi4py import MPI

everyone = MPI.COMM_WORLD
total = everyone.allreduce(everyone.rank + 1)
print(f"rank {everyone.rank} of {everyone.size} on {os.uname().nodename}: {total}", flush=True)
"""
_TRAIN: Final = b'''\
"""Ranks meet as by torch.distributed's env:// method: rank 0 listens at the master's address, the others connect."""
import os
import socket
import time

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])


def lead():
    with socket.create_server(("", address[1])) as server:
        peers = [server.accept()[0].makefile("rw") for _ in range(size - 1)]
        print("met", *sorted(int(peer.readline()) for peer in peers), flush=True)
        while os.environ.get("HELD") and not os.path.exists("/tmp/release"):
            time.sleep(0.1)
        for peer in peers:
            print(size, file=peer, flush=True)


def follow():
    while True:
        try:
            master = socket.create_connection(address, timeout=5)
            break
        except OSError as error:
            print(f"{address[0]}: {error}", flush=True)
            time.sleep(0.2)
    master.settimeout(None)
    with master.makefile("rw") as said:
        print(rank, file=said, flush=True)
        assert int(said.readline()) == size
    print("done", flush=True)


lead() if rank == 0 else follow()
'''


def load(host: NodeHost, folder: Path) -> None:
    """All of them, into the node."""
    files = {
        "etc/passwd": _USERS,
        "etc/ssh/sshd_config": b"PermitRootLogin prohibit-password\n",
        "srv/allreduce.py": _ALLREDUCE,
        "srv/train.py": _TRAIN,
        "srv/torch/distributed/launch.py": _LAUNCH,
    }
    links = {"usr/bin/python": "python3", "usr/bin/mpirun": "mpirun.openmpi", "var/run": "/run"}
    layer = debian.layer(_PACKAGES, files=files, links=links)
    environment = {"PATH": "/usr/sbin:/usr/bin", "PYTHONPATH": "/srv", "PYTHONDONTWRITEBYTECODE": "1"}
    made = [images.Image(tag=tag, layer=layer, command=["sh"], environment=environment) for tag in TAGS]
    made.append(images.busybox_image(WAITING))
    archive = folder / "images.tar"
    archive.write_bytes(images.archive(made, machine=platform.machine()))
    host.load_image(archive)
    archive.unlink()
