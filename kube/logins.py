"""Kubeconfigs of people who log in: by a plugin (``exec``) or at an OpenID Connect provider.

    logged_in(*paths, context=...) -> ClusterConfig -> Client

The kubernetes package runs plugins and renews tokens. It is imported when a user's entry asks for that: it takes 0.1 s
of CPU and more, which a certificate or a token does not cost. A daemon never imports this module: it must not depend on
a person's login tools.
"""

import base64
import os
import ssl
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from kube.config import ClusterConfig
from kube.errors import ConfigError
from kube.kubeconfig import Entry, User, choose, config_of, told

VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
"""The versions of login plugins' answers (Kubernetes documentation, "client-go credential plugins")."""
_IN_MEMORY: Final = "/dev/shm"  # noqa: S108 - a file system that reaches no disk


def logged_in(*paths: Path, context: str | None = None) -> ClusterConfig:
    """One context of kubeconfig files, the current one by default; its user logs in where the entry says how, once.

    Raises ConfigError, one line with file, field, what was found and what was expected.
    """
    entry = choose(paths, context)
    user = entry.user.value
    if user.exec is not None:
        user = _by_plugin(entry)
    if user.auth_provider is not None:
        user = msgspec.structs.replace(user, token=_by_provider(entry), token_file=None)
    config = config_of(msgspec.structs.replace(entry, user=msgspec.structs.replace(entry.user, value=user)))
    plugged = entry.user.value.exec is not None
    return replace(config, cert_source=f"{entry.user.where}.exec") if plugged else config


def _by_provider(entry: Entry) -> str:
    """The ID token of an OIDC provider, renewed where it has ended and then written into the file."""
    from kubernetes.client import ApiException, Configuration
    from kubernetes.config import ConfigException
    from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger
    from oauthlib.oauth2 import OAuth2Error
    from urllib3.exceptions import HTTPError

    where = f"{entry.user.where}.auth-provider"
    provider = entry.user.value.auth_provider
    name = provider.get("name") if isinstance(provider, dict) else provider
    if name != "oidc" or not isinstance(provider.get("config"), dict):
        raise ConfigError(f"{where}: found {name!r}, expected oidc with its config")
    for key, value in provider["config"].items():
        if not isinstance(value, str):
            raise ConfigError(f"{where}.config.{key}: found {type(value).__name__}, expected str")
    # The merger gets the user's file alone: the server's file does not matter for the token, and kubectl would save
    # into it.
    files = KubeConfigMerger(str(entry.user.file))
    user = files.config["users"].get_with_name(entry.user.name)["user"]
    persist = _trusting(entry.user.file, user["auth-provider"].value["config"], files)
    only = {
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "none", "user": entry.user.name}}],
        "clusters": [{"name": "none", "cluster": {"server": "http://localhost"}}],
        "users": [{"name": entry.user.name, "user": {"auth-provider": user["auth-provider"].value}}],
    }
    login = Configuration()
    # The package hands an issuer's authority over as a file, which is gone when the token has come.
    with tempfile.TemporaryDirectory(dir=_IN_MEMORY if Path(_IN_MEMORY).is_dir() else None) as folder:
        try:
            KubeConfigLoader(only, config_persister=persist, temp_file_path=folder).load_and_set(login)
        except (
            ConfigException,
            ApiException,
            OAuth2Error,
            HTTPError,
            OSError,
            ValueError,
            KeyError,
            TypeError,
        ) as wrong:
            raise ConfigError(f"{where}: {_line(wrong)}") from None
    token: str = login.api_key.get("BearerToken", "").removeprefix("Bearer ")
    if not token:
        raise ConfigError(f"{where}: it gave no token: log in anew")
    return token


def _trusting(path: Path, config: dict[str, Any], files: Any) -> Callable[[], None]:
    """Let the issuer's certificate be checked. Without an authority in the file the package would check none, and send
    client secret and refresh token to any server that answers: the system's authorities stand in, in memory alone.
    """
    key = "idp-certificate-authority"
    authority = config.get(key)
    if authority:
        config[key] = str(path.parent / authority)
    elif not config.get(f"{key}-data"):
        import certifi

        config[key] = ssl.get_default_verify_paths().cafile or certifi.where()

    def persist() -> None:
        added = config.pop(key, None)
        if authority:
            config[key] = authority
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


def _by_plugin(entry: Entry) -> User:
    """The user with what the plugin gave in place of ``exec``: a token, or a certificate with its key."""
    from kubernetes.config import ConfigException
    from kubernetes.config.exec_provider import ExecProvider
    from kubernetes.config.kube_config import ConfigNode

    where = f"{entry.user.where}.exec"
    raw = entry.user.value.exec
    try:
        plugin = msgspec.convert(raw, type=_Plugin)
    except msgspec.MsgspecError as wrong:
        raise ConfigError(told(where, str(wrong), ".")) from None
    if plugin.api_version not in VERSIONS:
        raise ConfigError(f"{where}.apiVersion: found {plugin.api_version!r}, expected {' or '.join(VERSIONS)}")
    if plugin.interactive_mode == "Always" and not sys.stdout.isatty():
        raise ConfigError(f"{where}.interactiveMode: found Always, expected a terminal to ask on")
    cluster = {key: value for key, value in msgspec.to_builtins(entry.cluster.value).items() if value is not None}
    folder = str(entry.user.file.parent)
    try:
        status = ExecProvider(ConfigNode("exec", raw), folder, ConfigNode("cluster", cluster)).run()
    except OSError as failed:
        hint = f" ({' '.join(plugin.install_hint.split())})" if plugin.install_hint else ""
        why = os.strerror(failed.errno or 0).lower()
        raise ConfigError(
            f"{where}.command: {plugin.command}: {why}, expected a program to log in with{hint}"
        ) from None
    except ConfigException as failed:
        raise ConfigError(f"{where}: {plugin.command}: {_line(failed)}: log in with it first") from None
    except (AttributeError, TypeError):
        # On a terminal the package has not read the plugin's output: the plugin itself has shown it.
        raise ConfigError(f"{where}: {plugin.command} gave no ExecCredential: log in with it first") from None
    return _with(entry.user.value, status, f"{where}: {plugin.command}")


def _with(user: User, status: Any, who: str) -> User:
    fields = status if isinstance(status, dict) else {}
    bare = msgspec.structs.replace(user, exec=None, token=None, token_file=None)
    if fields.get("token"):
        return msgspec.structs.replace(bare, token=str(fields["token"]))
    cert, key = fields.get("clientCertificateData"), fields.get("clientKeyData")
    if not (cert and key):
        raise ConfigError(f"{who}: found neither a token nor a certificate with its key in its ExecCredential")
    encoded = [base64.b64encode(str(pem).encode()).decode() for pem in (cert, key)]
    return msgspec.structs.replace(bare, client_certificate_data=encoded[0], client_key_data=encoded[1])


def _line(wrong: Exception) -> str:
    """The text without line breaks."""
    return " ".join(str(wrong).split()) or type(wrong).__name__
