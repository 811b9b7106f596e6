"""Pods with ResourceClaims, and what the node publishes for them."""

import json
from typing import Any

from tests.support.e2e.hands import DRIVER
from tests.support.e2e.lab import Lab, Pod


def slices(lab: Lab) -> list[dict[str, Any]]:
    """The driver's, of all nodes."""
    found: list[dict[str, Any]] = lab.get("/apis/resource.k8s.io/v1/resourceslices")["items"]
    return [each for each in found if each["spec"]["driver"] == DRIVER]


def devices(lab: Lab) -> dict[str, dict[str, Any]]:
    return {device["name"]: device for each in slices(lab) for device in each["spec"].get("devices", ())}


def create(lab: Lab, body: dict[str, Any]) -> None:
    lab.cluster.kubectl("create", "-f", "-", input=json.dumps(body))


def run(lab: Lab, name: str, claim: dict[str, Any], *, wait: bool = True) -> Pod:
    """A pod with one claim: ``claim`` is what stands in ``spec.resourceClaims``."""
    body = lab.pod_body(name, {})
    body["spec"]["resourceClaims"] = [{"name": "gpus", **claim}]
    body["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpus"}]}
    create(lab, body)
    pod = Pod(lab, name)
    if wait:
        pod.await_ready()
    return pod


def claim_template(lab: Lab, name: str, device_class: str, *selectors: str, **more: Any) -> None:
    """A template that asks for one device of a class; ``selectors`` are CEL, ``more`` goes into the request."""
    exactly = {
        "deviceClassName": device_class,
        "selectors": [{"cel": {"expression": expression}} for expression in selectors],
        **more,
    }
    spec = {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}}
    create(
        lab,
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": name},
            "spec": spec,
        },
    )
