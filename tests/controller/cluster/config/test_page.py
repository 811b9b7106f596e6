"""``tessera.page``: what signs people in and has the past is whole and safe, or the file is refused in one line."""

import json
from typing import Any

import pytest

from controller.cluster.config.load import parse
from controller.cluster.config.pagesettings import OidcProvider, PagePrometheus
from controller.cluster.config.settings import ControllerConfig
from yamlfile import ConfigError

PROVIDER = {
    "issuerURL": "https://login.example.com",
    "clientID": "tessera",
    "redirectURL": "https://tessera.example.com/page/oidc/callback",
}


def configured(page: dict[str, Any], **more: Any) -> ControllerConfig:
    file = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "tessera": {"page": page}, **more}
    return parse(json.dumps(file), "f")


def test_a_provider_needs_three_keys_and_the_rest_is_as_the_api_server_has_it() -> None:
    assert configured({"oidc": PROVIDER}).oidc == OidcProvider(
        issuer_url="https://login.example.com",
        client_id="tessera",
        redirect_url="https://tessera.example.com/page/oidc/callback",
        username_claim="sub",
        algorithms=("RS256",),
    )
    assert configured({}).oidc is None


@pytest.mark.parametrize("key", PROVIDER)
def test_without_one_of_them_the_file_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=f"expected the key {key}"):
        configured({"oidc": {name: value for name, value in PROVIDER.items() if name != key}})


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("issuerURL", "http://login.example.com", "expected https://HOST"),
        ("issuerURL", "https://me:secret@login.example.com", "expected https://HOST"),
        ("issuerURL", "https://login.example.com/?a=b", "expected https://HOST"),
        ("redirectURL", "https://tessera.example.com/", "expected https://HOST/page/oidc/callback"),
        ("redirectURL", "http://tessera.example.com/page/oidc/callback", "expected https://HOST/page/oidc/callback"),
        ("signingAlgs", ["none"], "expected RS256"),
        ("signingAlgs", ["HS256"], "expected RS256"),
        ("scopes", ["a b"], "expected a scope"),
        ("sessionLife", "13h", "expected a duration of at most 12h"),
        ("sessionLife", "1s", "at least 60s"),
    ],
)
def test_what_is_unsafe_is_refused(key: str, value: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}.*{said}"):
        configured({"oidc": {**PROVIDER, key: value}})


def test_history_turns_the_series_of_queues_on_unless_the_file_says_otherwise() -> None:
    prometheus = {"prometheus": {"url": "http://prometheus:9090"}}
    found = configured(prometheus)
    assert found.page_prometheus == PagePrometheus(url="http://prometheus:9090")
    assert found.metrics.cluster_queue_resources
    assert not configured({}).metrics.cluster_queue_resources
    off = {"metrics": {"enableClusterQueueResources": False}}
    assert not configured(prometheus, **off).metrics.cluster_queue_resources


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"url": "ftp://prometheus"}, "expected http://HOST"),
        ({"timeout": "5s"}, "expected the key url"),
        ({"url": "http://p", "timeout": "1m"}, "expected a duration of at most 20s"),
        ({"url": "http://me@p", "bearerTokenFile": "/t"}, "expected none beside a user in url"),
    ],
)
def test_a_prometheus_that_cannot_be_asked_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        configured({"prometheus": given})
