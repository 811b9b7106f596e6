"""Which patch a CRD needs, and what is written to the API server."""

from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.cluster.webhooks.injection import (
    CONVERTED,
    CRDS,
    MUTATING,
    PLACEHOLDER,
    PLAIN,
    VALIDATING,
    ForeignConversionError,
    Injected,
    ServiceTarget,
    StoredError,
    UrlTarget,
    crd_patch,
    inject,
    served_patch,
    webhook_patch,
)
from kube.client import Client
from kube.testing import FakeApiServer

CHART_CRDS = sorted((Path(__file__).parents[4] / "charts/tessera/crds").glob("*.kueue.x-k8s.io.yaml"))
TRUSTED = b"-----BEGIN CERTIFICATE-----\n"
BUNDLE = b64encode(TRUSTED).decode()
US = ServiceTarget("ours", "hook")
KUEUE = {"service": {"namespace": "kueue-system", "name": "kueue-webhook-service", "path": "/convert", "port": 443}}


def crd(plural: str = "workloads", *, config: dict[str, Any] | None = None) -> dict[str, Any]:
    conversion: dict[str, Any] = {"strategy": "None"}
    if config is not None:
        webhook = {"clientConfig": config, "conversionReviewVersions": ["v1"]}
        conversion = {"strategy": "Webhook", "webhook": webhook}
    metadata = {"name": f"{plural}.kueue.x-k8s.io", "resourceVersion": "7"}
    return {"metadata": metadata, "spec": {"conversion": conversion}}


def ours(**more: Any) -> dict[str, Any]:
    return US.client_config("/convert") | {"caBundle": BUNDLE} | more


def test_a_crd_that_calls_us_and_trusts_us_needs_nothing() -> None:
    assert crd_patch(crd(config=ours()), US, TRUSTED, take_over=False) is None


@pytest.mark.parametrize(
    "config",
    [None, PLACEHOLDER.client_config("/convert"), ours(caBundle="b2xk"), US.client_config("/convert")],
    ids=["no webhook", "as the chart has it", "old bundle", "no bundle"],
)
def test_ours_are_pointed_at_us_without_being_asked(config: dict[str, Any] | None) -> None:
    patch = crd_patch(crd(config=config), US, TRUSTED, take_over=False)
    assert patch is not None
    assert patch["metadata"] == {"resourceVersion": "7"}
    conversion = patch["spec"]["conversion"]
    assert conversion["strategy"] == "Webhook"
    assert conversion["webhook"]["clientConfig"] == {**ours(), "url": None}


def test_kueues_are_taken_over_when_they_may_be_and_refused_by_name_else() -> None:
    installed = crd(config=KUEUE | {"caBundle": "b2xk"})
    with pytest.raises(ForeignConversionError, match=r"workloads\..*kueue-system/kueue-webhook-service"):
        crd_patch(installed, US, TRUSTED, take_over=False)
    patch = crd_patch(installed, US, TRUSTED, take_over=True)
    assert patch is not None
    assert patch["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["namespace"] == "ours"


def test_cert_manager_is_told_to_leave_the_bundle_alone() -> None:
    known = crd(config=ours())
    known["metadata"]["annotations"] = {"cert-manager.io/inject-ca-from": "a/b", "keep": "this"}
    assert crd_patch(known, US, TRUSTED, take_over=True) == {
        "metadata": {"resourceVersion": "7", "annotations": {"cert-manager.io/inject-ca-from": None}}
    }


def test_kinds_whose_versions_agree_need_nobody() -> None:
    assert crd_patch(crd("topologies"), US, TRUSTED, take_over=False) is None
    patch = crd_patch(crd("topologies", config=KUEUE), US, TRUSTED, take_over=True)
    assert patch is not None
    assert patch["spec"]["conversion"] == {"strategy": "None", "webhook": None}


def test_an_address_replaces_the_service() -> None:
    patch = crd_patch(crd(config=ours()), UrlTarget("https://127.0.0.1:1"), TRUSTED, take_over=True)
    assert patch is not None
    assert patch["spec"]["conversion"]["webhook"]["clientConfig"] == {
        "url": "https://127.0.0.1:1/convert", "caBundle": BUNDLE, "service": None
    }  # fmt: skip


def configuration(bundle: str = "") -> dict[str, Any]:
    config = US.client_config("/mutate-job") | ({"caBundle": bundle} if bundle else {})
    hook = {"name": "a", "clientConfig": config, "sideEffects": "None"}
    return {"metadata": {"name": "hooks", "resourceVersion": "3"}, "webhooks": [hook]}


def test_a_webhook_configuration_gets_its_bundle_and_keeps_the_rest() -> None:
    patch = webhook_patch(configuration(), US, TRUSTED)
    assert patch == {"metadata": {"resourceVersion": "3"}, "webhooks": configuration(BUNDLE)["webhooks"]}
    assert webhook_patch(configuration(BUNDLE), US, TRUSTED) is None
    assert webhook_patch({"metadata": {}}, US, TRUSTED) is None
    moved = webhook_patch(configuration(), UrlTarget("https://h:1"), TRUSTED)
    assert moved is not None
    assert moved["webhooks"][0]["clientConfig"] == {"url": "https://h:1/mutate-job", "caBundle": BUNDLE}


def test_each_webhook_keeps_its_path_whoever_wrote_its_address_before() -> None:
    given = configuration()
    given["webhooks"][0]["clientConfig"] = {"url": "https://old:2/mutate-pod", "caBundle": BUNDLE}
    moved = webhook_patch(given, UrlTarget("https://h:1"), TRUSTED)
    assert moved is not None
    assert moved["webhooks"][0]["clientConfig"] == {"url": "https://h:1/mutate-pod", "caBundle": BUNDLE}


def test_the_charts_crds_name_the_placeholder_and_agree_who_needs_us() -> None:
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found = {path.name.split(".")[0]: yaml.load(path.read_text(), loader)["spec"] for path in CHART_CRDS}
    assert set(found) <= {*CONVERTED, *PLAIN}
    for plural, spec in found.items():
        conversion = spec["conversion"]
        if plural in CONVERTED:
            assert conversion["webhook"]["clientConfig"] == PLACEHOLDER.client_config("/convert")
        else:
            assert conversion == {"strategy": "None"}


async def test_what_is_installed_is_written_once_and_what_is_not_is_passed_over() -> None:
    async with FakeApiServer() as server, Client(server.config) as client:
        server.create(CRDS, "workloads.kueue.x-k8s.io", crd(config=PLACEHOLDER.client_config("/convert")))
        server.create(CRDS, "clusterqueues.kueue.x-k8s.io", crd("clusterqueues", config=KUEUE))
        server.create(CRDS, "topologies.kueue.x-k8s.io", crd("topologies"))
        server.create(MUTATING, "hooks", configuration())
        injected = await inject(
            client, US, TRUSTED, leading=False, configurations=((MUTATING, "hooks"), (VALIDATING, "absent"))
        )
        assert [sentence.split(":")[0] for sentence in injected.refused] == [
            "CustomResourceDefinition clusterqueues.kueue.x-k8s.io"
        ]
        found = server.get(CRDS, "workloads.kueue.x-k8s.io")["spec"]["conversion"]
        assert found["webhook"]["clientConfig"] == ours()
        assert server.get(MUTATING, "hooks")["webhooks"] == configuration(BUNDLE)["webhooks"]
        assert len(server.seen("PATCH", "")) == 2
        again = await inject(client, US, TRUSTED, leading=True, configurations=((MUTATING, "hooks"),))
        assert again == Injected([], postponed=False)
        assert len(server.seen("PATCH", "")) == 3, "only the one that was refused before"
        taken = server.get(CRDS, "clusterqueues.kueue.x-k8s.io")["spec"]["conversion"]
        assert taken["webhook"]["clientConfig"] == ours()


def versions(*, older: bool, stored: str = "v1beta2") -> list[dict[str, Any]]:
    said = {"v1alpha1": False, "v1beta1": older, "v1beta2": True}
    return [{"name": name, "served": served, "storage": name == stored} for name, served in said.items()]


def served(found: dict[str, Any]) -> dict[str, bool]:
    return {version["name"]: version["served"] for version in found["spec"]["versions"]}


@pytest.mark.parametrize("now", [True, False])
def test_the_older_version_is_turned_on_and_off_by_one_word_of_its_own_entry(now: bool) -> None:
    known = crd()
    known["spec"]["versions"] = versions(older=now)
    assert served_patch(known, served=now) is None
    assert served_patch(known, served=not now) == [
        {"op": "test", "path": "/spec/versions/1/name", "value": "v1beta1"},
        {"op": "replace", "path": "/spec/versions/1/served", "value": not now},
    ]


def test_a_version_that_is_stored_stays_served_and_one_that_is_not_there_is_nobodys_matter() -> None:
    known = crd()
    known["spec"]["versions"] = versions(older=True, stored="v1beta1")
    with pytest.raises(StoredError, match=r"workloads\.kueue\.x-k8s\.io: v1beta1 is the version .* apply the chart's"):
        served_patch(known, served=False)
    known["spec"]["versions"] = versions(older=True)[2:]
    assert served_patch(known, served=False) is None


async def test_v1beta1_of_workload_alone_goes_and_comes_back_and_the_webhook_converts_all_along() -> None:
    async with FakeApiServer() as server, Client(server.config) as client:
        names = [f"{plural}.kueue.x-k8s.io" for plural in ("workloads", "clusterqueues", "topologies")]
        for name in names:
            known = crd(name.partition(".")[0], config=PLACEHOLDER.client_config("/convert"))
            known["spec"]["versions"] = versions(older=True)
            server.create(CRDS, name, known)
        for on in (False, True, False):
            assert await inject(client, US, TRUSTED, leading=True, serve_old_workloads=on) == Injected([])
            found = [server.get(CRDS, name) for name in names]
            assert [served(each)["v1beta1"] for each in found] == [on, True, True]
            assert all(served(each)["v1beta2"] for each in found)
            assert [each["spec"]["conversion"]["strategy"] for each in found] == ["Webhook", "Webhook", "None"]
        writes = len(server.written("customresourcedefinitions"))
        assert await inject(client, US, TRUSTED, leading=True, serve_old_workloads=False) == Injected([])
        assert len(server.written("customresourcedefinitions")) == writes


async def test_of_replicas_that_are_configured_differently_the_one_that_leads_has_the_say() -> None:
    async with FakeApiServer() as server, Client(server.config) as client:
        known = crd(config=PLACEHOLDER.client_config("/convert"))
        known["spec"]["versions"] = versions(older=True)
        server.create(CRDS, "workloads.kueue.x-k8s.io", known)
        follows = await inject(client, US, TRUSTED, leading=False, serve_old_workloads=False)
        assert follows == Injected([], postponed=True)
        found = server.get(CRDS, "workloads.kueue.x-k8s.io")
        assert served(found)["v1beta1"]
        assert found["spec"]["conversion"]["webhook"]["clientConfig"] == ours(), "conversion is every replica's"


async def test_while_a_live_kueue_converts_its_versions_stay_as_it_has_them() -> None:
    async with FakeApiServer() as server, Client(server.config) as client:
        known = crd(config=KUEUE)
        known["spec"]["versions"] = versions(older=True)
        server.create(CRDS, "workloads.kueue.x-k8s.io", known)
        injected = await inject(client, US, TRUSTED, leading=False, serve_old_workloads=False)
        assert len(injected.refused) == 1
        assert served(server.get(CRDS, "workloads.kueue.x-k8s.io"))["v1beta1"]


async def test_where_the_older_version_is_stored_the_conversion_is_written_all_the_same() -> None:
    async with FakeApiServer() as server, Client(server.config) as client:
        known = crd(config=PLACEHOLDER.client_config("/convert"))
        known["spec"]["versions"] = versions(older=True, stored="v1beta1")
        server.create(CRDS, "workloads.kueue.x-k8s.io", known)
        injected = await inject(client, US, TRUSTED, leading=True, serve_old_workloads=False)
        assert ["v1beta1 is the version that objects are stored in" in each for each in injected.refused] == [True]
        found = server.get(CRDS, "workloads.kueue.x-k8s.io")
        assert found["spec"]["conversion"]["webhook"]["clientConfig"] == ours()
        assert served(found)["v1beta1"]
