"""Kubeconfigs with certificates and tokens, of one file and of several: against the kubernetes package, and by hand."""

import base64
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kubernetes.client import Configuration
from kubernetes.config import ConfigException
from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger

from kube.config import ClusterConfig, TokenSource
from kube.errors import ConfigError
from kube.kubeconfig import MOST_LEVELS, MOST_MERGED, contexts_of, from_kubeconfig

Json = dict[str, Any]


def written(
    folder: Path, user: Json, *, as_json: bool = False, name: str = "kubeconfig", **cluster: str | bool
) -> Path:
    dashed = {key.replace("_", "-"): value for key, value in cluster.items()}
    body = {
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443/"} | dashed}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "lab"}}],
    }
    return saved(folder / name, body, as_json=as_json)


def saved(path: Path, body: Json, *, as_json: bool = False) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(body) if as_json else yaml.safe_dump(body))
    return path


def refused(*paths: Path, context: str | None = None) -> str:
    """What is said: one line."""
    with pytest.raises(ConfigError) as wrong:
        from_kubeconfig(*paths, context=context)
    said = str(wrong.value)
    assert said.splitlines() == [said]
    return said


PEMS: Final = ("one.pem", "two.pem", "folder/three.pem")
NAMES: Final = ("a", "2026-01-31")
NAME: Final = st.sampled_from(NAMES)
PATHS: Final = st.sampled_from(PEMS)
DATA: Final = (
    st.text("abcdefgh -\n", min_size=3).filter(str.strip).map(lambda text: base64.b64encode(text.encode()).decode())
)


def pem(key: str) -> st.SearchStrategy[Json]:
    """A file, what would stand in it, or both."""
    file, data = st.fixed_dictionaries({key: PATHS}), st.fixed_dictionaries({f"{key}-data": DATA})
    return st.one_of(file, data, st.fixed_dictionaries({f"{key}-data": DATA, key: PATHS}))


def merged(*parts: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    return st.tuples(*parts).map(lambda each: {key: value for part in each for key, value in part.items()})


CLUSTERS: Final = merged(
    st.fixed_dictionaries(
        {"server": st.sampled_from(("https://10.0.0.1:6443", "https://api.lab/", "https://api.lab/k8s/clusters/c-1"))},
        optional={
            "insecure-skip-tls-verify": st.booleans(),
            "tls-server-name": st.sampled_from(("api.lab", "10.0.0.1")),
            "proxy-url": st.sampled_from(("http://proxy.lab:3128", "https://user:word@proxy.lab")),
            "extensions": st.just([{"name": "e", "extension": {"last-update": "now"}}]),
        },
    ),
    st.just({}) | pem("certificate-authority"),
)
USERS: Final = merged(
    st.just({}) | merged(pem("client-certificate"), pem("client-key")),
    st.one_of(
        st.just({}),
        st.fixed_dictionaries({"token": st.text("abc.DEF-_", min_size=1)}),
        st.fixed_dictionaries({"tokenFile": PATHS}),
    ),
)


def named(kind: str, values: st.SearchStrategy[Json]) -> st.SearchStrategy[list[Json]]:
    """Each name at most once; most often all of them."""
    found = st.tuples(st.fixed_dictionaries(dict.fromkeys(NAMES, values)), st.sampled_from(("", "", "", *NAMES)))
    return found.map(lambda of: [{"name": name, kind: value} for name, value in of[0].items() if name != of[1]])


CONTEXTS: Final = st.fixed_dictionaries(
    {"cluster": NAME, "user": NAME}, optional={"namespace": st.sampled_from(("lab", "team-a"))}
)
FILES: Final = st.fixed_dictionaries(
    {"clusters": named("cluster", CLUSTERS), "users": named("user", USERS), "contexts": named("context", CONTEXTS)},
    optional={"current-context": NAME, "preferences": st.just({}), "kind": st.just("Config")},
)


class Lab:
    """A folder with certificates, and the package's answer for kubeconfigs in it."""

    def __init__(self, folder: Path, bodies: list[Json]) -> None:
        (folder / "folder").mkdir()
        for name in PEMS:
            (folder / name).write_text(f"TEXT OF {name}")
        self.folder = folder
        self.paths = [saved(folder / f"config-{number}", body) for number, body in enumerate(bodies)]

    def package(self, context: str) -> Json:
        """Raises ConfigException."""
        files = KubeConfigMerger(os.pathsep.join(map(str, self.paths)))
        found = Configuration()
        KubeConfigLoader(
            files.config, active_context=context, config_base_path=None, temp_file_path=str(self.folder)
        ).load_and_set(found)
        paths = (found.ssl_ca_cert, found.cert_file, found.key_file)
        ca, cert, key = (Path(path).read_text() if path else None for path in paths)
        return {
            "server": found.host,
            "ca_pem": ca,
            "cert_pem": cert,
            "key_pem": key,
            "insecure": not found.verify_ssl,
            "tls_server_name": found.tls_server_name,
            "proxy_url": found.proxy,
            "token": found.api_key.get("BearerToken", "").removeprefix("Bearer ") or None,
        }


def fields(config: ClusterConfig) -> Json:
    keys = ("server", "ca_pem", "cert_pem", "key_pem", "insecure", "tls_server_name", "proxy_url")
    found: Json = {key: getattr(config, key) for key in keys}
    return found | {"token": TokenSource(config, monotonic=lambda: 0.0).token()}


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(FILES, min_size=1, max_size=3), NAME)
def test_it_reads_what_the_kubernetes_package_reads(bodies: list[Json], context: str) -> None:
    users = {entry["name"] for body in bodies for entry in body["users"]}
    first = next((each for body in bodies for each in body["contexts"] if each["name"] == context), None)
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(Path(folder), bodies)
        try:
            expected = lab.package(context)
        except ConfigException:
            refused(*lab.paths, context=context)
            return
        assert first is not None
        if first["context"]["user"] not in users:  # the package asks as nobody then; kubectl refuses
            assert f"contexts[{context}].user: found" in refused(*lab.paths, context=context)
            return
        if expected["ca_pem"] and expected["insecure"]:  # kubectl refuses
            assert ".insecure-skip-tls-verify: found true beside" in refused(*lab.paths, context=context)
            return
        config = from_kubeconfig(*lab.paths, context=context)
        assert fields(config) == expected
        assert config.namespace == first["context"].get("namespace", "default")
        assert set(contexts_of(lab.paths)) == {entry["name"] for body in bodies for entry in body["contexts"]}


def test_of_several_files_the_first_that_says_something_has_it_whole(tmp_path: Path) -> None:
    """As the documentation of kubectl says under "Merging kubeconfig files"."""
    first = saved(
        tmp_path / "one" / "config",
        {
            "current-context": "",
            "users": [{"name": "red", "user": {"client-certificate": "red.crt", "client-key": "red.key"}}],
            "contexts": [{"name": "here", "context": {"cluster": "c", "user": "red"}}],
        },
    )
    second = saved(
        tmp_path / "two" / "config",
        {
            "current-context": "here",
            "clusters": [{"name": "c", "cluster": {"server": "https://two", "certificate-authority": "ca.crt"}}],
            "users": [{"name": "red", "user": {"token": "not this one"}}],
            "contexts": [{"name": "here", "context": {"cluster": "none", "user": "none", "namespace": "none"}}],
        },
    )
    third = saved(tmp_path / "three" / "config", {"current-context": "there", "users": None})
    for name in ("one/red.crt", "one/red.key", "two/ca.crt"):
        (tmp_path / name).write_text(name)
    config = from_kubeconfig(first, second, third)
    assert (config.server, config.ca_pem, config.namespace) == ("https://two", "two/ca.crt", "default")
    assert (config.cert_pem, config.key_pem, config.token) == ("one/red.crt", "one/red.key", None)


def test_what_is_wrong_is_told_of_the_file_that_it_stands_in(tmp_path: Path) -> None:
    first = saved(tmp_path / "one", {"current-context": "here"})
    second = written(tmp_path, {"client-key": "gone.pem"}, name="two")
    assert refused(first, second) == (
        f"{tmp_path}/gone.pem: found no such file or directory, expected what {second}: users[u].client-key names"
    )
    assert refused(first, second, context="away").startswith(
        "--context: found 'away', expected one of the contexts: here"
    )


def test_a_json_kubeconfig_is_read_without_the_yaml_parser(tmp_path: Path) -> None:
    path = written(tmp_path, {"token": "t"}, as_json=True)
    code = (
        "import sys; sys.modules['yaml'] = None\n"
        "from pathlib import Path; from kube.kubeconfig import from_kubeconfig\n"
        f"print(from_kubeconfig(Path({str(path)!r})).server)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=Path.cwd())
    assert done.stdout == "https://10.0.0.1:6443\n", done.stderr


def test_yaml_that_begins_as_json_does_is_read(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(
        "\ufeff{current-context: 'a', clusters: [{name: c, cluster: {server: 'https://a'}}],\n"
        " contexts: [{name: a, context: {cluster: c}}]}"
    )
    assert from_kubeconfig(path).server == "https://a"


BAD: Final = (
    "https://[::1",
    "https://[zz]",
    "https://h:abc",
    "https://127.0.0.1:99999",
    "https://::1:6443",
    "https://h?x=1",
    "https://h#f",
    "https://a..b",
)


@pytest.mark.parametrize("server", ["10.0.0.1:6443", "https://", "https://10.0.0.1\n:6443", "ftp://10.0.0.1", *BAD])
def test_a_server_that_is_no_address_is_refused(tmp_path: Path, server: str) -> None:
    said = refused(written(tmp_path, {}, server=server))
    assert "clusters[c].server: found" in said
    assert said.endswith("expected https://HOST:PORT")


@pytest.mark.parametrize("server", ["https://me:hush@a", "http://me:hush@h:abc", "https://me:hush@[::1"])
def test_a_server_with_a_password_is_refused_without_it(tmp_path: Path, server: str) -> None:
    said = refused(written(tmp_path, {"token": "t"}, server=server))
    assert "clusters[c].server: found 'http" in said
    assert "hush" not in said


@pytest.mark.parametrize("server", ["HTTPS://a.lab:6443", "https://[fe80::1%25eth0]:1", "https://zürich.lab"])
def test_addresses_that_can_be_asked_are_taken(tmp_path: Path, server: str) -> None:
    assert from_kubeconfig(written(tmp_path, {}, server=server)).server == server.replace("HTTPS", "https")


def test_keys_that_multiply_by_merging_are_bounded(tmp_path: Path) -> None:
    lines = ["x0: &x0 {" + ", ".join(f"k{n}: 1" for n in range(9)) + "}"]
    lines += [f"x{n}: &x{n} {{<<: [{', '.join([f'*x{n - 1}'] * 9)}]}}" for n in range(1, 7)]
    path = tmp_path / "config"
    path.write_text("\n".join(lines))
    assert refused(path) == f"{path}: found more than {MOST_MERGED} merged keys, expected fewer"


@pytest.mark.parametrize(
    ("user", "said"),
    [
        ({"as-groups": ["g"]}, "users[u].as-groups: found without as, expected as beside it"),
        ({"as-uid": "7"}, "users[u].as-uid: found without as"),
        ({"as-user-extra": {"a": ["b"]}}, "users[u].as-user-extra: found without as"),
        ({"tokenFile": "two.lines"}, "two.lines: found a control character in it, expected the token that "),
        ({"exec": {"command": "login"}}, "users[u].exec: not supported here, expected a client certificate, token or"),
        ({"auth-provider": {"name": "gcp"}}, "users[u].auth-provider: not supported here"),
        ({"username": "u", "password": "p"}, "users[u].username: not supported here"),
        ({"client-key-data": "%%%"}, "users[u].client-key-data: found other text, expected base64 of PEM text"),
        ({"client-key-data": "YQ"}, "users[u].client-key-data: found other text, expected base64 of PEM text"),
        ({"client-key": "gone.pem"}, "gone.pem: found no such file or directory, expected what "),
        ({"client-key": "empty.pem"}, "empty.pem: found nothing in it, expected what "),
        ({"client-certificate-data": "YQ=="}, "users[u].client-key: found none, expected the key of its"),
        ({"tokenFile": "gone"}, "gone: found no such file or directory, expected the token that "),
        ({"tokenFile": "a\0b"}, "expected the token that "),
        ({"token": 7}, "users[0].user.token: found int, expected str"),
        ({"token": "a\nb"}, "users[u].token: found a control character in it, expected one line of text"),
        ({"as": "a\r\nX: y"}, "users[u].as: found a control character in it"),
    ],
)
def test_a_user_that_cannot_be_used_says_where(tmp_path: Path, user: Json, said: str) -> None:
    (tmp_path / "empty.pem").write_text("\n")
    (tmp_path / "two.lines").write_text("a\nb\n")
    assert said in refused(written(tmp_path, user))


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        ({"certificate_authority": "."}, "found is a directory, expected what"),
        ({"insecure_skip_tls_verify": "yes"}, "clusters[0].cluster.insecure-skip-tls-verify: found str, expected bool"),
        ({"tls_server_name": ".lab"}, "clusters[c].tls-server-name: found '.lab', expected a host's name"),
        ({"proxy_url": "http://me:hush@a:abc"}, "clusters[c].proxy-url: found 'http://a:abc', expected http"),
        ({"proxy_url": "http://me:hush@[::1"}, "clusters[c].proxy-url: found 'http://[::1', expected http"),
        (
            {"proxy_url": "socks5://me:hush@a"},
            "clusters[c].proxy-url: found 'socks5://a', expected http://HOST:PORT or https:",
        ),
    ],
)
def test_a_cluster_that_cannot_be_used_says_where(tmp_path: Path, cluster: dict[str, Any], said: str) -> None:
    assert said in refused(written(tmp_path, {}, **cluster))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "current-context: found '', expected one of the contexts: none"),
        ("7", "found int, expected object"),
        ("users: 7", "users: found int, expected array"),
        ("users: [{user: {}}]", "users[0]: found no name, expected one"),
        ('{"users": [{"name": 7}]}', "users[0].name: found int, expected str"),
        ("contexts: [{name: x}]\ncurrent-context: x", "contexts[x].cluster: found '', expected a cluster with"),
        ("a: [", ":1: column 5: not valid YAML: found the end of the text, expected a value, or the closing"),
        ("n: " + "9" * 5000, f':1: column 4: not valid YAML: found "{"9" * 40}" (Exceeds the limit'),
        ("[" * 300_000, f":1: found more than {MOST_LEVELS} levels, expected a flatter file"),
        ("- " * 300_000, f":1: found more than {MOST_LEVELS} levels, expected a flatter file"),
        ('{"a":' * 300_000, f"found more than {MOST_LEVELS} levels, expected a flatter file"),
        ("{? [a]: b}", ':1: column 4: not valid YAML: found "[a]:" (found unhashable key)'),
    ],
)  # fmt: skip
def test_a_file_that_is_no_kubeconfig_says_where(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    assert refused(path).startswith(f"{path}{said if said.startswith(':') else ': ' + said}")


def test_a_name_twice_in_one_file_is_refused_as_kubectl_does(tmp_path: Path) -> None:
    twice = [{"name": "here", "context": {"cluster": "c"}}] * 2
    said = refused(saved(tmp_path / "config", {"current-context": "here", "contexts": twice}))
    assert said == f"{tmp_path}/config: contexts[here]: found twice, expected each name once"


def test_a_file_without_an_end_is_given_up() -> None:
    assert refused(Path("/dev/zero")) == "/dev/zero: found more than 16 MiB, expected a kubeconfig file"


def test_a_file_in_another_encoding_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_bytes(b"\xff\xfea")
    assert refused(path) == f"{path}:1: found bytes that are no UTF-8, expected UTF-8 text"


def test_an_alias_that_stands_for_millions_takes_no_memory(tmp_path: Path) -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    for before, this in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"{this}: &{this} [{', '.join([f'*{before}'] * 9)}]")
    path = tmp_path / "config"
    path.write_text("\n".join([*lines, "users: [{name: u, user: {exec: *i}}]", "current-context: x"]))
    assert "expected one of the contexts: none" in refused(path)


def test_base64_may_be_broken_into_lines(tmp_path: Path) -> None:
    text = base64.encodebytes(b"CA TEXT" * 30).decode()
    assert from_kubeconfig(written(tmp_path, {}, certificate_authority_data=text)).ca_pem == "CA TEXT" * 30


def test_who_takes_anothers_part_asks_with_the_headers_for_it(tmp_path: Path) -> None:
    """Header names as in the documentation of Kubernetes under "User impersonation"."""
    extra = {"acme.com/project": ["x", "y"]}
    user = {"as": "jane", "as-uid": "7", "as-groups": ["devs", "ops"], "as-user-extra": extra}
    assert from_kubeconfig(written(tmp_path, user)).headers == (
        ("Impersonate-User", "jane"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "devs"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Extra-acme.com%2Fproject", "x"),
        ("Impersonate-Extra-acme.com%2Fproject", "y"),
    )


def test_an_unknown_context_names_the_ones_there_are(tmp_path: Path) -> None:
    assert "--context: found 'away', expected one of the contexts: here" in refused(
        written(tmp_path, {}), context="away"
    )


def test_secrets_are_in_no_repr(tmp_path: Path) -> None:
    config = from_kubeconfig(written(tmp_path, {"token": "hush"}, proxy_url="http://me:hush@proxy"))
    assert (config.token, config.proxy_url) == ("hush", "http://me:hush@proxy")
    assert "hush" not in repr(config)
