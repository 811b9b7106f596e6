"""Login plugins of a kubeconfig (``users[].user.exec``): a program that prints who the person is.

For a person's shell alone: daemons do not run other people's programs. Source: the API of
``client.authentication.k8s.io``, v1 and v1beta1 (Kubernetes documentation, "client-go credential plugins").
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from kube.errors import ConfigError

TIMEOUT_S = 60.0
"""Of a plugin that asks nothing; one that may ask waits for the person."""
VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


class Credential(Struct, frozen=True, kw_only=True, rename="camel"):
    """``status`` of an ExecCredential: a token, or a client certificate with its key, as PEM text."""

    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None


class _Variable(Struct):
    name: str
    value: str = ""


class Plugin(Struct, kw_only=True, rename="camel"):
    """``exec`` as the kubeconfig has it."""

    command: str
    api_version: str = VERSIONS[0]
    args: list[str] | None = None
    env: list[_Variable] | None = None
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = "IfAvailable"


class _Answer(Struct):
    kind: str = ""
    status: Credential | None = None


def log_in(raw: dict[str, Any], where: str, folder: Path, cluster: Mapping[str, Any]) -> Credential:
    """Run the plugin. ``where`` names its place in messages, ``folder`` is the kubeconfig's, ``cluster`` is for plugins
    that ask for it. Its own standard error is shown as it comes. Raises ConfigError with one line.
    """
    try:
        plugin = msgspec.convert(raw, type=Plugin)
    except msgspec.MsgspecError as wrong:
        raise ConfigError(f"{where}: {wrong}") from None
    if plugin.api_version not in VERSIONS:
        raise ConfigError(f"{where}.apiVersion: found {plugin.api_version!r}, expected {' or '.join(VERSIONS)}")
    interactive = plugin.interactive_mode != "Never" and sys.stdin is not None and sys.stdin.isatty()
    if plugin.interactive_mode == "Always" and not interactive:
        raise ConfigError(f"{where}.interactiveMode: found Always, expected a terminal to ask on")
    command = str(folder / plugin.command) if "/" in plugin.command else plugin.command
    try:
        done = subprocess.run(
            [command, *(plugin.args or ())],
            env=_environment(plugin, cluster, interactive=interactive),
            stdin=None if interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=None if interactive else TIMEOUT_S,
            check=False,
        )
    except OSError as failed:
        hint = f" ({' '.join(plugin.install_hint.split())})" if plugin.install_hint else ""
        why = os.strerror(failed.errno or 0).lower()
        raise ConfigError(
            f"{where}.command: {plugin.command}: {why}, expected a program to log in with{hint}"
        ) from None
    except subprocess.TimeoutExpired:
        raise ConfigError(f"{where}: {plugin.command} has not answered in {TIMEOUT_S:g} s") from None
    if done.returncode != 0:
        raise ConfigError(f"{where}: {plugin.command} ended with {done.returncode}: log in with it first")
    return _read(done.stdout, f"{where}: {plugin.command}")


def _environment(plugin: Plugin, cluster: Mapping[str, Any], *, interactive: bool) -> dict[str, str]:
    spec: dict[str, Any] = {"interactive": interactive}
    if plugin.provide_cluster_info:
        spec["cluster"] = dict(cluster)
    info = {"kind": "ExecCredential", "apiVersion": plugin.api_version, "spec": spec}
    own = {variable.name: variable.value for variable in plugin.env or ()}
    return {**os.environ, **own, "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()}


def _read(answer: bytes, who: str) -> Credential:
    try:
        found = msgspec.json.decode(answer, type=_Answer)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise ConfigError(f"{who}: found another answer, expected an ExecCredential as JSON") from None
    credential = found.status or Credential()
    whole = credential.client_certificate_data and credential.client_key_data
    if found.kind != "ExecCredential" or not (credential.token or whole):
        raise ConfigError(f"{who}: found neither a token nor a certificate with its key in its ExecCredential")
    return credential
