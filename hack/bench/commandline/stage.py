"""The servers that commands find on this machine, none of which answers, and the kubeconfig that leads to them."""

import base64
import os
import shutil
import ssl
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from controller.cluster.webhooks.certificates import Pair, new_authority, new_client, new_serving
from hack.bench.commandline.firstrequest import Door, to_first_line, to_first_request
from hack.bench.commandline.scenes import Asked

TESSERA: Final = (sys.executable, "-c", "from cli.main import main; main()")

_KUBECONFIG: Final = """apiVersion: v1
kind: Config
current-context: person@here
clusters:
- name: here
  cluster:
    server: https://localhost:{port}
    certificate-authority-data: {authority}
users:
- name: person
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
contexts:
- name: person@here
  context:
    cluster: here
    user: person
    namespace: team-a
"""
"""As kubeadm and clouds write it."""


class Stage:
    """An API server, which is a Prometheus too, and the two sockets of an agent, in ``folder``."""

    def __init__(self, folder: Path) -> None:
        now_s = time.time()
        authority = new_authority(now_s)
        self._ca = folder / "ca.crt"
        self._ca.write_bytes(authority.certificate)
        self._folder = folder
        (folder / "kubectl").symlink_to(shutil.which("true") or "/bin/true")
        self._api = Door(tls=_shown(new_serving(authority, ["localhost"], now_s), folder / "serving.pem"))
        self._local = [Door(path=folder / name) for name in ("agent.sock", "sim.sock")]
        person = new_client(authority, "person", now_s)
        texts = {"authority": authority.certificate, "certificate": person.certificate, "key": person.key}
        encoded = {name: base64.b64encode(text).decode() for name, text in texts.items()}
        (folder / "kubeconfig").write_text(_KUBECONFIG.format(port=self._api.port, **encoded))

    def environment(self, env: Mapping[str, str]) -> Mapping[str, str]:
        """A person's, whose kubectl does nothing: what is handed over to it is not ours to measure."""
        path = f"{self._folder}{os.pathsep}{env.get('PATH', '')}"
        return {**env, "KUBECONFIG": str(self._folder / "kubeconfig"), "HOME": str(self._folder), "PATH": path}

    def command_s(self, line: str, asked: Asked, env: Mapping[str, str]) -> float:
        """CPU of a command until it asks. Raises NoRequestError."""
        return self.program_s([*TESSERA, *line.split(), *self._options(asked)], asked, env)

    def program_s(self, command: Sequence[str], asked: Asked, env: Mapping[str, str]) -> float:
        """The same for another program."""
        if asked is Asked.NOBODY:
            return to_first_line(command, env)
        return to_first_request(command, env, [self._api, *self._local])

    def _options(self, asked: Asked) -> Sequence[str]:
        if asked is Asked.NODE:
            return ("--state-dir", str(self._folder))
        if asked is Asked.PROMETHEUS:
            return ("--prometheus", f"https://localhost:{self._api.port}", "--ca-file", str(self._ca))
        return ()

    def close(self) -> None:
        for door in (self._api, *self._local):
            door.close()


def _shown(pair: Pair, file: Path) -> ssl.SSLContext:
    """Python's ssl takes a certificate from a file alone."""
    file.write_bytes(pair.certificate + pair.key)
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    found.load_cert_chain(file)
    return found
