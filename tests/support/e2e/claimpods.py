"""Pods with ResourceClaims, what the node publishes for them, and the agent that serves them."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.agent.hands import DRIVER
from tests.support.e2e.agentrights import chart_token
from tests.support.e2e.lab import Agent, Lab, Pod


@contextmanager
def claims_agent(lab: Lab, folder: Path, hardware: Path, config: str, *, driver: str = DRIVER) -> Iterator[Agent]:
    """With the rights of the chart's account, whose DeviceClasses are there."""
    with chart_token(lab, folder, f"dra.driver={driver}") as token:
        rights = lab.kubeconfig(folder / "config", token=token)
        flags = () if driver == DRIVER else ("--dra-driver", driver)
        with lab.agent(hardware, config, kubeconfig=rights, flags=flags) as agent:
            yield agent


def slices(lab: Lab) -> list[dict[str, Any]]:
    """The driver's, of all nodes."""
    found: list[dict[str, Any]] = lab.get("/apis/resource.k8s.io/v1/resourceslices")["items"]
    return [each for each in found if each["spec"]["driver"] == DRIVER]


def devices(lab: Lab) -> dict[str, dict[str, Any]]:
    return {device["name"]: device for each in slices(lab) for device in each["spec"].get("devices") or ()}


def said(lab: Lab) -> dict[str, dict[str, Any]]:
    """What claims say of the driver's devices (``status.devices``), by device."""
    found = lab.get("/apis/resource.k8s.io/v1/resourceclaims")["items"]
    every = (each for claim in found for each in claim.get("status", {}).get("devices", ()))
    return {each["device"]: each for each in every if each["driver"] == DRIVER}


def ready(lab: Lab) -> dict[str, str]:
    """By device, what its claim's condition Ready is."""
    return {name: each["conditions"][0]["status"] for name, each in said(lab).items() if each.get("conditions")}


def create(lab: Lab, body: dict[str, Any]) -> None:
    lab.cluster.kubectl("create", "-f", "-", input=json.dumps(body))


def run(lab: Lab, name: str, claim: dict[str, Any], *, wait: bool = True) -> Pod:
    """A pod of one container with one claim: ``claim`` is what stands in ``spec.resourceClaims``."""
    return run_all(lab, name, {"gpus": claim}, {"main": ("gpus", "")}, wait=wait)


def run_all(
    lab: Lab,
    name: str,
    claims: Mapping[str, dict[str, Any]],
    containers: Mapping[str, tuple[str, str]],
    *,
    wait: bool = True,
) -> Pod:
    """A pod with these claims, and of these containers: each has a claim, or one request of it where that is named."""
    body = lab.pod_body(name, {})
    (main,) = body["spec"]["containers"]
    body["spec"]["resourceClaims"] = [{"name": key, **claim} for key, claim in claims.items()]
    body["spec"]["containers"] = [
        {
            **main,
            "name": container,
            "resources": {"claims": [{"name": claim, **({"request": request} if request else {})}]},
        }
        for container, (claim, request) in containers.items()
    ]
    create(lab, body)
    pod = Pod(lab, name)
    if wait:
        pod.await_ready()
    return pod


def inside(pod: Pod, container: str, script: str) -> list[str]:
    """The lines that a shell in one of its containers prints."""
    return pod.lab.cluster.kubectl("exec", pod.name, "-c", container, "--", "sh", "-c", script).splitlines()


def request(name: str, device_class: str, *selectors: str, **more: Any) -> dict[str, Any]:
    """For one device of a class; ``selectors`` are CEL."""
    chosen = [{"cel": {"expression": expression}} for expression in selectors]
    return {"name": name, "exactly": {"deviceClassName": device_class, "selectors": chosen, **more}}


def config(kind: str, *requests: str, **parameters: Any) -> dict[str, Any]:
    """One of NVIDIA's opaque configurations, for these requests."""
    whole = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": kind, **parameters}
    return {"requests": [*requests], "opaque": {"driver": DRIVER, "parameters": whole}}


def template(lab: Lab, name: str, requests: list[dict[str, Any]], **devices: Any) -> dict[str, str]:
    """A template of claims with these requests; ``devices``: constraints and config. What a pod says to have one."""
    spec = {"spec": {"devices": {"requests": requests, **devices}}}
    meta = {"name": name}
    create(
        lab,
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": meta, "spec": spec},
    )
    return {"resourceClaimTemplateName": name}


def claim_template(lab: Lab, name: str, device_class: str, *selectors: str, **more: Any) -> dict[str, str]:
    """A template that asks for one device of a class; ``more`` goes into the request."""
    return template(lab, name, [request("gpu", device_class, *selectors, **more)])
