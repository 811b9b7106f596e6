"""Kubeconfigs: one context of a file, or of several that count as one, as kubectl reads them.

    from_kubeconfig(*paths, context=...) -> ClusterConfig
    choose(paths, context) -> Entry -> config_of(entry)

Among several files the first that names a cluster, a user or a context has it whole, and the first that names a current
context decides it (Kubernetes documentation, "Merging kubeconfig files"). Paths are relative to the file they stand in.
``kube.logins`` handles logins (``exec``, OIDC).
"""

import base64
import ipaddress
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import Struct

from kube.config import CONTROL, ClusterConfig, read_text, token_of
from kube.errors import ConfigError

T = TypeVar("T")

_ADDRESS: Final = re.compile(r"https?://[^\s/?#]+(/[^\s?#]*)?", re.IGNORECASE)
_PASSWORD: Final = re.compile(r"//.*@", re.DOTALL)
_LABEL: Final = r"[\w-]{1,63}"
_HOST: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*\.?|[0-9a-fA-F:.]+", re.ASCII)
_DATA: Final = {False: "", True: "-data"}
_NO_USER: Final = {False: "", True: " without a user"}
_LINE_BREAKS: Final = {ord("\r"): None, ord("\n"): None}
"""The line breaks that Go's reader of base64 passes over; it passes over no other character."""
_NAME: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*\.?")
MOST_LEVELS: Final = 64
MOST_MERGED: Final = 10_000
"""The most keys that `<<` may bring into mappings: a file of 1 KiB may ask for millions."""
_DEEP: Final = f"found more than {MOST_LEVELS} levels, expected a flatter file"
_UNFIT: Final = re.compile(r"Expected `(?P<expected>[^`]*)`, got `(?P<found>[^`]*)`")
_MISSING: Final = re.compile(r"Object missing required field `(?P<field>[^`]*)`")


class Cluster(Struct, rename="kebab"):
    """The address and authority of an API server. Data goes before the file of the same name."""

    server: str | None = None
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool | None = None
    tls_server_name: str | None = None
    proxy_url: str | None = None
    extensions: Any = None


class User(Struct, rename="kebab"):
    """The credentials of one user."""

    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    token: str | None = None
    token_file: str | None = msgspec.field(default=None, name="tokenFile")
    username: str | None = None
    exec: Any = None
    auth_provider: Any = None
    impersonate: str | None = msgspec.field(default=None, name="as")
    impersonate_uid: str | None = msgspec.field(default=None, name="as-uid")
    impersonate_groups: list[str] | None = msgspec.field(default=None, name="as-groups")
    impersonate_extra: dict[str, list[str]] | None = msgspec.field(default=None, name="as-user-extra")


class _Context(Struct):
    cluster: str | None = None
    user: str | None = None
    namespace: str | None = None


class _NamedCluster(Struct):
    name: str
    cluster: Cluster | None = None


class _NamedUser(Struct):
    name: str
    user: User | None = None


class _NamedContext(Struct):
    name: str
    context: _Context | None = None


class _Kubeconfig(Struct, rename={"current_context": "current-context"}):
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None
    current_context: str | None = None


class Placed(Struct, Generic[T], frozen=True):
    """An entry with its name, and the file that it stands in."""

    file: Path
    kind: str
    name: str
    value: T

    @property
    def where(self) -> str:
        """The place of the entry, with which messages about it begin."""
        return f"{self.file}: {self.kind}[{self.name}]"


class Entry(Struct, frozen=True):
    """One context with its cluster and its user."""

    context: str
    namespace: str
    cluster: Placed[Cluster]
    user: Placed[User]


def from_kubeconfig(*paths: Path, context: str | None = None) -> ClusterConfig:
    """One context of kubeconfig files, the current one by default.

    Raises ConfigError, one line with file, field, what was found and what was expected; also for a user who would have
    to log in.
    """
    entry = choose(paths, context)
    for key, value in (("exec", entry.user.value.exec), ("auth-provider", entry.user.value.auth_provider)):
        if value is not None:
            raise ConfigError(_unsupported(entry.user, key))
    return config_of(entry)


def choose(paths: Sequence[Path], context: str | None = None) -> Entry:
    """The entries of the context, by default of the current one. Raises ConfigError naming the file and the key."""
    files = [(path, _parse(path)) for path in paths]
    current = next(((path, each.current_context) for path, each in files if each.current_context), (paths[0], ""))
    file, chosen = (current[0], context) if context else current
    contexts = _placed(
        "contexts", ((path, each.name, each.context) for path, one in files for each in one.contexts or ())
    )
    if chosen not in contexts:
        names = ", ".join(contexts) or "none"
        where = "--context" if context else f"{file}: current-context"
        raise ConfigError(f"{where}: found {chosen!r}, expected one of the contexts: {names}")
    placed = contexts[chosen]
    value = placed.value or _Context()
    clusters = _placed(
        "clusters", ((path, each.name, each.cluster) for path, one in files for each in one.clusters or ())
    )
    users = _placed("users", ((path, each.name, each.user) for path, one in files for each in one.users or ()))
    cluster = clusters.get(value.cluster or "")
    if cluster is None or cluster.value is None or not cluster.value.server:
        raise ConfigError(f"{placed.where}.cluster: found {value.cluster or ''!r}, expected a cluster with a server")
    if value.user and value.user not in users:
        names = ", ".join(users) or "none"
        raise ConfigError(f"{placed.where}.user: found {value.user!r}, expected one of the users: {names}")
    user = users[value.user] if value.user else Placed(placed.file, "users", "", None)
    return Entry(
        context=chosen,
        namespace=value.namespace or "default",
        cluster=Placed(cluster.file, cluster.kind, cluster.name, cluster.value),
        user=Placed(user.file, user.kind, user.name, user.value or User()),
    )


def contexts_of(paths: Sequence[Path]) -> list[str]:
    """The contexts' names. Raises ConfigError."""
    return [each.name for path in paths for each in _parse(path).contexts or ()]


def _placed(kind: str, entries: Iterable[tuple[Path, str, T]]) -> dict[str, Placed[T]]:
    """The entries by name: those of an earlier file win. A name twice in one file is refused, as kubectl does."""
    by_name: dict[str, Placed[T]] = {}
    seen: set[tuple[Path, str]] = set()
    for path, name, value in entries:
        if (path, name) in seen:
            raise ConfigError(f"{path}: {kind}[{name}]: found twice, expected each name once")
        seen.add((path, name))
        by_name.setdefault(name, Placed(path, kind, name, value))
    return by_name


def config_of(entry: Entry) -> ClusterConfig:
    """The configuration of the entry, with its files read. Logins in it are passed over. Raises ConfigError."""
    cluster, user = entry.cluster.value, entry.user.value
    if user.username is not None:
        raise ConfigError(_unsupported(entry.user, "username"))
    of_cluster, of_user = _Files(entry.cluster), _Files(entry.user)
    certificate = of_user.pem("client-certificate", user.client_certificate, user.client_certificate_data)
    key = of_user.pem("client-key", user.client_key, user.client_key_data)
    if certificate is not None and key is None:
        raise ConfigError(f"{entry.user.where}.client-key: found none, expected the key of its client-certificate")
    token_file = entry.user.file.parent / user.token_file if user.token_file else None
    if token_file is not None and not user.token:
        token_of(token_file, f"the token that {entry.user.where}.tokenFile names")
    if cluster.insecure_skip_tls_verify and (cluster.certificate_authority or cluster.certificate_authority_data):
        raise ConfigError(
            f"{entry.cluster.where}.insecure-skip-tls-verify: found true beside a certificate-authority, expected one"
        )
    return ClusterConfig(
        server=_address(entry.cluster, "server", cluster.server or "", "https://HOST:PORT").rstrip("/"),
        ca_pem=of_cluster.pem(
            "certificate-authority", cluster.certificate_authority, cluster.certificate_authority_data
        ),
        insecure=bool(cluster.insecure_skip_tls_verify),
        tls_server_name=_fit(entry.cluster, "tls-server-name", cluster.tls_server_name, _HOST, "a host's name"),
        cert_pem=certificate,
        key_pem=key,
        token=_secret(entry.user, "token", user.token),
        token_file=token_file,
        namespace=entry.namespace,
        proxy_url=_address(
            entry.cluster, "proxy-url", cluster.proxy_url, "http://HOST:PORT or https://HOST:PORT", named=True
        )
        if cluster.proxy_url
        else None,
        ca_source=f"{entry.cluster.where}.certificate-authority{_DATA[bool(cluster.certificate_authority_data)]}",
        cert_source=f"{entry.user.where}.client-certificate{_DATA[bool(user.client_certificate_data)]}",
        headers=tuple(_impersonated(entry.user)),
    )


def _unsupported(user: Placed[User], key: str) -> str:
    return f"{user.where}.{key}: not supported here, expected a client certificate, token or tokenFile"


def _fit(entry: Placed[Any], key: str, value: T, pattern: re.Pattern[str], expected: str) -> T:
    if isinstance(value, str) and value and pattern.fullmatch(value) is None:
        shown = _PASSWORD.sub("//", value)
        raise ConfigError(f"{entry.where}.{key}: found {shown!r}, expected {expected}")
    return value


def _address(entry: Placed[Cluster], key: str, value: str | None, expected: str, *, named: bool = False) -> str:
    """``value`` with its scheme in small letters. ``named``: a user and a password may stand in it."""
    text = value or ""
    found = _ADDRESS.fullmatch(text) is not None and _reachable(text)
    if not found or ("@" in urlsplit(text).netloc and not named):
        raise ConfigError(
            f"{entry.where}.{key}: found {_PASSWORD.sub('//', text)!r}, expected {expected}{_NO_USER[found]}"
        )
    scheme, rest = text.split("://", 1)
    return f"{scheme.lower()}://{rest}"


def _reachable(text: str) -> bool:
    """Whether host and port are such that a connection could be made."""
    try:
        parts = urlsplit(text)
        _ = parts.port
        host = parts.hostname or ""
        if "[" in parts.netloc:
            ipaddress.IPv6Address(host.replace("%25", "%"))
            return True
        return _NAME.fullmatch(host if host.isascii() else host.encode("idna").decode()) is not None
    except ValueError:
        return False


def _secret(entry: Placed[Any], key: str, value: str | None) -> str | None:
    """``value``, or None where it is empty. Raises ConfigError where a header cannot carry it; the error does not show
    it.
    """
    if value and CONTROL.search(value):
        raise ConfigError(f"{entry.where}.{key}: found a control character in it, expected one line of text")
    return value or None


def _impersonated(entry: Placed[User]) -> Iterator[tuple[str, str]]:
    """The headers of an impersonated user (Kubernetes documentation, "User impersonation")."""
    user = entry.value
    for key, more in (
        ("groups", user.impersonate_groups),
        ("uid", user.impersonate_uid),
        ("user-extra", user.impersonate_extra),
    ):
        if more and not user.impersonate:
            raise ConfigError(f"{entry.where}.as-{key}: found without as, expected as beside it")
    extra = [
        (f"Impersonate-Extra-{quote(key, safe='')}", value)
        for key, values in (user.impersonate_extra or {}).items()
        for value in values
    ]
    groups = [("Impersonate-Group", group) for group in user.impersonate_groups or ()]
    for name, value in (
        ("Impersonate-User", user.impersonate),
        ("Impersonate-Uid", user.impersonate_uid),
        *groups,
        *extra,
    ):
        if value:
            yield name, _secret(entry, "as", value) or ""


def _parse(path: Path) -> _Kubeconfig:
    text = read_text(path, "a kubeconfig file", empty=True)
    try:
        if text.lstrip().startswith("{"):
            try:
                return msgspec.json.decode(text, type=_Kubeconfig)
            except msgspec.ValidationError:
                raise
            except msgspec.DecodeError:
                pass  # YAML may begin with this character as well
        read = _yaml(path, text)
        return msgspec.convert({} if read is None else read, type=_Kubeconfig)
    except msgspec.MsgspecError as error:
        raise ConfigError(told(str(path), str(error))) from None
    except RecursionError:
        raise ConfigError(f"{path}: {_DEEP}") from None


def _yaml(path: Path, text: str) -> Any:
    """The YAML's value, read in two passes: the C reader goes down with the nesting, without a bound of its own."""
    # The import is made here, for YAML only: the agent in a pod never pays for the parser.
    import yaml

    from yamlfile.words import Placed, not_yaml

    class Loader(Placed, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        """A loader in which dates are texts, as in kubectl's reader: a context may be called 2026-01-31."""

        yaml_implicit_resolvers: Final = {
            first: [each for each in resolvers if each[0] != "tag:yaml.org,2002:timestamp"]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

        merged: int = 0

        def flatten_mapping(self, node: Any) -> None:
            """Count the merged keys before they are merged: they may grow ninefold with each of a few lines."""
            for key, value in node.value:
                if key.tag == "tag:yaml.org,2002:merge":
                    for each in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                        if isinstance(each, yaml.MappingNode):
                            self.flatten_mapping(each)
                            self.merged += len(each.value)
                            if self.merged > MOST_MERGED:
                                raise ConfigError(f"{path}: found more than {MOST_MERGED} merged keys, expected fewer")
            super().flatten_mapping(node)

    try:
        depth = 0
        for event in yaml.parse(text, Loader=Loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MOST_LEVELS:
                raise ConfigError(f"{path}:{event.start_mark.line + 1 if event.start_mark else 1}: {_DEEP}")
        return yaml.load(text, Loader=Loader)  # noqa: S506 - a safe one
    except yaml.YAMLError as error:
        raise ConfigError(not_yaml(text, error).told(str(path))) from None


def told(place: str, error: str, joint: str = ": ") -> str:
    """An error of msgspec as our messages have it: file, field, found, expected. ``joint`` stands between place and
    field.
    """
    problem, _, at = error.partition(" - at ")
    inside, of, field = at.strip("`").rpartition("` in `")
    where = joint.join(filter(None, (place, field.removeprefix("$").removeprefix("."))))
    if (unfit := _UNFIT.search(problem)) is not None:
        return f"{where}: found {unfit['found']}, expected {unfit['expected'].removesuffix(' | null')}"
    if (missing := _MISSING.search(problem)) is not None:
        return f"{where}: found no {missing['field']}, expected one"
    return f"{where}: {inside}{of and ': '}{problem}"


class _Files:
    """Reads the certificates that an entry holds or points to."""

    def __init__(self, entry: Placed[Any]) -> None:
        self._entry = entry

    def pem(self, key: str, file: str | None, data: str | None) -> str | None:
        """The text of a certificate or key. ``<key>-data`` (base64) wins over the file ``<key>``, as with kubectl."""
        if data:
            try:
                pem = base64.b64decode(data.translate(_LINE_BREAKS), validate=True).decode()
            except ValueError:  # no base64, no ASCII, no text
                pem = ""
            if not pem.strip():
                raise ConfigError(f"{self._entry.where}.{key}-data: found other text, expected base64 of PEM text")
            return pem
        if not file:
            return None
        return read_text(self._entry.file.parent / file, f"what {self._entry.where}.{key} names")
