"""``ssh``: a pair of keys for the job, with which its pods log in at each other.

The private key is in the Secret alone: nothing here writes it into a message.
"""

import base64
from collections.abc import Mapping
from typing import Final

from controller.foreign.jobs.plugins.flags import Parsed, Value
from controller.foreign.jobs.plugins.plugin import JobView, Kept, PodView, mount, owned
from controller.jobs.framework.raw import Json

_FOLDER, _PRIVATE, _PUBLIC, _PORT = "ssh-key-file-path", "ssh-private-key", "ssh-public-key", "ssh-port"
_DEFAULT_FOLDER: Final = "/root/.ssh"
_WITHIN: Final = ".ssh"
"""A folder within the volume: the volume's own root is open to all, and sshd refuses keys in such a folder."""
_ID, _ID_PUB, _AUTHORIZED, _CONFIG = FILES = ("id_rsa", "id_rsa.pub", "authorized_keys", "config")
_KEY_BITS: Final = 2048
_KEYS: Final = 4096
"""Bytes of the keys: more than their files have."""
_OWNER_ALONE: Final = 0o600
_READABLE: Final = 0o644
"""The mode of the files for users other than root, who do not own them."""


class Ssh:
    name = "ssh"
    flags: Mapping[str, Value] = {_FOLDER: _DEFAULT_FOLDER, _PRIVATE: "", _PUBLIC: "", _PORT: 22}

    def write(self, pod: Json, _made: PodView, job: JobView, given: Parsed) -> None:
        folder = given.text(_FOLDER)
        secret = {
            "secretName": _secret_name(job),
            "items": [{"key": name, "path": f"{_WITHIN}/{name}"} for name in FILES],
            "defaultMode": _OWNER_ALONE if folder == _DEFAULT_FOLDER else _READABLE,
        }
        mount(pod, {"name": _secret_name(job), "secret": secret}, mountPath=folder, subPath=_WITHIN)

    def objects(self, job: JobView, given: Parsed) -> tuple[Kept, ...]:
        """The Secret, with the keys in the arguments if there are any; ``keyed`` makes keys otherwise."""
        private, public = given.text(_PRIVATE), given.text(_PUBLIC)
        data = {_CONFIG: _encoded(_config(job, given.number(_PORT)))}
        if private and public:
            data |= _pair(private.rstrip("\n") + "\n", public.rstrip("\n") + "\n")
        return (Kept(body=owned(job, "v1", "Secret", _secret_name(job), type="Opaque", data=data)),)


def keyed(secret: Json) -> Json:
    """The Secret with keys in it: new ones, if it has none."""
    if _ID in secret["data"]:
        return secret
    from cryptography.hazmat.primitives import serialization  # 9 MiB
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=_KEY_BITS)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return {**secret, "data": {**secret["data"], **_pair(private.decode(), public.decode() + "\n")}}


def secret_bytes(job: JobView, given: Parsed) -> int:
    """A bound of the bytes of the Secret's data, computed without making a list."""
    # A host stands there twice, once without its domain and the dot before that; in a list it has a separator behind
    # it.
    around = len(f"Host \n  HostName \n  Port {given.number(_PORT)}\n") - len(",,.")
    tasks = (2 * task.listed_bytes + task.named * (around - len(task.domain.encode())) for task in job.tasks)
    return sum(tasks) + _KEYS


def _pair(private: str, public: str) -> dict[str, str]:
    return {_ID: _encoded(private), _ID_PUB: _encoded(public), _AUTHORIZED: _encoded(public)}


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _config(job: JobView, port: int) -> str:
    """The ssh configuration. Hosts change their keys with each start, so none is remembered."""
    lines = ["StrictHostKeyChecking no", "UserKnownHostsFile /dev/null"]
    for host in (host for task in job.tasks for host in task.hosts):
        lines += [f"Host {host.partition('.')[0]}", f"  HostName {host}", f"  Port {port}"]
    return "\n".join(lines) + "\n"


def _secret_name(job: JobView) -> str:
    return f"{job.name}-ssh"
