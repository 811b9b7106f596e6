"""The API server's address and credentials, read by the kubernetes package: for the controller and the command line.

    load(kubeconfig) | in_cluster() | from_kubeconfig(path, context=..., logins=True) -> ClusterConfig -> Client

The package is imported when one of these is called: it takes 0.2 s and 18 MiB, which a command that asks no API server
does not pay. The agent never imports this module: its reader is ``kube.config``, which also says what is wrong with a
file here, by file and key.
"""

import base64
import os
import ssl
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from kube.config import SERVICE_ACCOUNT_DIR, ClusterConfig, KubeconfigContext, choose, refuse_logins
from kube.errors import ConfigError

VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
"""Of the answers of login plugins (Kubernetes documentation, "client-go credential plugins")."""
_IN_MEMORY: Final = "/dev/shm"  # noqa: S108 - a file system that reaches no disk


def load(kubeconfig: str | None) -> ClusterConfig:
    """The kubeconfig file where one is named, else the pod's service account. Raises ConfigError."""
    return in_cluster() if kubeconfig is None else from_kubeconfig(Path(kubeconfig))


def in_cluster(*, root: Path = SERVICE_ACCOUNT_DIR, environ: Mapping[str, str] = os.environ) -> ClusterConfig:
    """Configuration of a pod, from its environment and the service-account mount. Raises ConfigError outside of one."""
    from kubernetes.client import Configuration
    from kubernetes.config import ConfigException
    from kubernetes.config.incluster_config import InClusterConfigLoader

    token, ca, namespace = root / "token", root / "ca.crt", root / "namespace"
    found = Configuration()
    try:
        InClusterConfigLoader(str(token), str(ca), environ=environ).load_and_set(found)
    except (ConfigException, OSError) as wrong:
        said = _line(wrong).rstrip(".")
        raise ConfigError(f"{root}: {said}: outside a pod a kubeconfig file must be named") from None
    return ClusterConfig(
        server=found.host,
        ca_pem=ca.read_text(),
        token_file=token,
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
    )


def from_kubeconfig(path: Path, *, context: str | None = None, logins: bool = False) -> ClusterConfig:
    """One context of a kubeconfig file, its current one by default; paths in it are relative to its folder.

    With ``logins`` a user's ``exec`` is run and an OIDC token renewed, once: for a command, not for a daemon, which
    must not depend on a person's login tools. Raises ConfigError, one line that names the file and what is wrong in it.
    """
    entry = choose(path, context)
    if not logins:
        refuse_logins(path, entry)
    from kubernetes.client import ApiException, Configuration
    from kubernetes.config import ConfigException
    from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger
    from oauthlib.oauth2 import OAuth2Error
    from urllib3.exceptions import HTTPError

    files = KubeConfigMerger(str(path))
    persist = _prepared(path, entry, files)
    found = Configuration()
    # The package hands certificates and keys over as files: these are gone when they have been read.
    with tempfile.TemporaryDirectory(dir=_IN_MEMORY if Path(_IN_MEMORY).is_dir() else None) as folder:
        try:
            KubeConfigLoader(
                files.config,
                active_context=entry.context,
                config_base_path=None,
                config_persister=persist,
                temp_file_path=folder,
            ).load_and_set(found)
            pems = [_read(file) for file in (found.ssl_ca_cert, found.cert_file, found.key_file)]
        except (ConfigException, ApiException, OAuth2Error, HTTPError, OSError, ValueError, KeyError) as wrong:
            raise ConfigError(f"{path}: contexts[{entry.context}]: {_line(wrong)}") from None
    token = found.api_key.get("BearerToken", "").removeprefix("Bearer ") or None
    if entry.user.auth_provider is not None and token is None:
        raise ConfigError(f"{path}: users[{entry.user_name}].auth-provider: it gave no token: log in anew")
    return ClusterConfig(
        server=found.host,
        ca_pem=pems[0],
        insecure=not found.verify_ssl,
        tls_server_name=found.tls_server_name,
        cert_pem=pems[1],
        key_pem=pems[2],
        token=token,
        token_file=path.parent / entry.user.token_file if entry.user.token_file else None,
        namespace=entry.namespace,
    )


def _prepared(path: Path, entry: KubeconfigContext, files: Any) -> Callable[[], None]:
    """Prepare the chosen user for the package's loader, and return the function that writes renewed tokens into the
    file.

    A login plugin runs here: the loader would log its failure and go on without credentials.
    """
    where = f"{path}: users[{entry.user_name}]"
    if entry.user.exec is not None:
        user = files.config["users"].get_with_name(entry.user_name)["user"]
        cluster = files.config["clusters"].get_with_name(entry.cluster_name)["cluster"]
        credentials = _logged_in(user["exec"], entry.user.exec, f"{where}.exec", path, cluster)
        for key in ("exec", "token", "tokenFile"):
            user.value.pop(key, None)
        user.value.update(credentials)
    if entry.user.auth_provider is None:
        return lambda: None
    provider = files.config["users"].get_with_name(entry.user_name)["user"]["auth-provider"].value
    if provider.get("name") != "oidc" or not isinstance(provider.get("config"), dict):
        raise ConfigError(f"{where}.auth-provider: found {provider.get('name')!r}, expected oidc with its config")
    return _trusting(path, provider["config"], files)


def _trusting(path: Path, config: dict[str, Any], files: Any) -> Callable[[], None]:
    """Have the issuer's certificate checked. Without an authority in the file the package would check none, and send
    client secret and refresh token to any server that answers: the system's authorities stand in, in memory alone.
    """
    key = "idp-certificate-authority"
    given = config.get(key)
    if given:
        config[key] = str(path.parent / given)
    elif not config.get(f"{key}-data"):
        import certifi

        config[key] = ssl.get_default_verify_paths().cafile or certifi.where()

    def persist() -> None:
        added = config.pop(key, None)
        if given:
            config[key] = given
        files.save_changes()
        if added is not None:
            config[key] = added

    return persist


class _Variable(Struct):
    name: str
    value: str = ""


class _Plugin(Struct, kw_only=True, rename="camel"):
    """The fields of a kubeconfig's ``exec`` that the package does not check."""

    command: str
    api_version: str = ""
    args: list[str] | None = None
    env: list[_Variable] | None = None
    install_hint: str = ""
    interactive_mode: str = "IfAvailable"


def _logged_in(node: Any, raw: dict[str, Any], where: str, path: Path, cluster: Any) -> dict[str, str]:
    """The credentials that replace ``exec`` in the user: a token, or a certificate with its key. Raises ConfigError."""
    from kubernetes.config import ConfigException
    from kubernetes.config.exec_provider import ExecProvider

    try:
        plugin = msgspec.convert(raw, type=_Plugin)
    except msgspec.MsgspecError as wrong:
        raise ConfigError(f"{where}: {wrong}") from None
    if plugin.api_version not in VERSIONS:
        raise ConfigError(f"{where}.apiVersion: found {plugin.api_version!r}, expected {' or '.join(VERSIONS)}")
    if plugin.interactive_mode == "Always" and not sys.stdout.isatty():
        raise ConfigError(f"{where}.interactiveMode: found Always, expected a terminal to ask on")
    try:
        status = ExecProvider(node, str(path.parent), cluster).run()
    except OSError as failed:
        hint = f" ({' '.join(plugin.install_hint.split())})" if plugin.install_hint else ""
        why = os.strerror(failed.errno or 0).lower()
        raise ConfigError(
            f"{where}.command: {plugin.command}: {why}, expected a program to log in with{hint}"
        ) from None
    except ConfigException as failed:
        raise ConfigError(f"{where}: {plugin.command}: {_line(failed)}: log in with it first") from None
    except (AttributeError, TypeError):
        # On a terminal the package has not read what the plugin said: the plugin itself has shown it.
        raise ConfigError(f"{where}: {plugin.command} gave no ExecCredential: log in with it first") from None
    return _credentials(status, f"{where}: {plugin.command}")


def _credentials(status: Any, who: str) -> dict[str, str]:
    found = status if isinstance(status, dict) else {}
    if found.get("token"):
        return {"token": str(found["token"])}
    cert, key = found.get("clientCertificateData"), found.get("clientKeyData")
    if not (cert and key):
        raise ConfigError(f"{who}: found neither a token nor a certificate with its key in its ExecCredential")
    encoded = [base64.b64encode(str(pem).encode()).decode() for pem in (cert, key)]
    return {"client-certificate-data": encoded[0], "client-key-data": encoded[1]}


def _read(file: str | None) -> str | None:
    return Path(file).read_text() if file else None


def _line(wrong: Exception) -> str:
    """The text without line breaks."""
    return " ".join(str(wrong).split()) or type(wrong).__name__
