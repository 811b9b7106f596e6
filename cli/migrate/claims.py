"""NVIDIA's DRA driver: its chart, its DaemonSet, and the objects of claims."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from agent.dra.claim import ClaimError, Config
from agent.dra.configs import check
from cli.migrate.chartvalues import CLAIMS, apply, given
from cli.migrate.inputs import Inputs, is_replaced, system_of
from cli.migrate.nvidia import variables
from cli.migrate.parts import Json, Part, Step, Told
from cli.migrate.podspecs import placed_as
from cli.migrate.steps import applied, held
from cli.words import migrating as say
from controller.insight.simulation.documents import Document

DRIVER: Final = "gpu.nvidia.com"
_USUAL: Final = ("nvidia-dra-driver-gpu", "nvidia-dra-driver-gpu-kubelet-plugin")
"""Namespace and name of the DaemonSet by NVIDIA's instructions, where no file tells them."""
LAYOUT: Final = "gpulayouts.tessera.dev"
_GPUS: Final = 8
GATES: Final = {
    "ComputeDomainCliques": say.DOMAINS_GATE,
    "CrashOnNVLinkFabricErrors": say.DOMAINS_GATE,
    "DeviceMetadata": say.NO_METADATA,
    "IMEXDaemonsWithDNSNames": say.DOMAINS_GATE,
    "PassthroughSupport": say.NO_PASSTHROUGH,
    "TimeSlicingSettings": say.NO_INTERVALS,
}
"""Feature gates that switch on what is not served; of others the agent does what they say, or does without them."""
_INSIDE: Final = ("ALT_PROC", "CDI_ROOT", "DEVICE_CLASSES", "DRIVER_ROOT", "FEATURE_GATES", "HEALTHCHECK_PORT",
                  "IMAGE_NAME", "KUBELET_", "LOG_VERBOSITY", "MASK_", "NAMESPACE", "NVIDIA_DRIVER_ROOT",
                  "NVIDIA_MIG_CONFIG_DEVICES", "POD_")  # fmt: skip
"""How the variables begin by which NVIDIA's chart tells its program what the chart's values say."""
_DONE_ANYHOW: Final = frozenset({"DynamicMIG", "MPSSupport", "NVMLDeviceHealthCheck"})


def claims(inputs: Inputs) -> Part:
    """NVIDIA's DRA driver as its own chart runs it, and the objects of claims."""
    charts = [each.data for each in inputs.chart("dra-driver")]
    programs = [each for each in inputs.workloads if system_of(each) == "claims"]
    sets = [each for each in programs if is_replaced(each)]
    runs = bool(sets) or any(given(values, "resources.gpus.enabled") is not False for values in charts)
    part = Part(agent=runs)
    objects(inputs, part)
    for each in programs:
        if each not in sets:
            words = say.DOMAINS_CONTROLLER if each.kind == "Deployment" else say.DOMAINS_ALONE
            part.keep(f"{each.kind} {_place(each)[1]}", words)
    if not runs:
        return part
    for values in charts:
        _chart(values, part)
    for document in sets:
        name = document.data["metadata"]["name"]
        spec = document.data["spec"]["template"]["spec"]
        for each in spec.get("containers") or ():
            if each.get("name") == "gpus":
                variables(f"DaemonSet {name}: gpus: env", _own(each.get("env")), part)
    placed_as(sets, inputs, part)
    serve(part)
    for space, name in [_place(each) for each in sets] or [_USUAL]:
        part.before(held(say.stop_set("DRA driver", name), space, name))
    if any(given(values, "resources.computeDomains.enabled") is not False for values in charts) or not charts:
        part.lose("ComputeDomains", say.DOMAINS_LEAVE)
    part.after(layout({}, gpus_of(inputs)))
    return part


def _place(document: Document) -> tuple[str, str]:
    metadata = document.data["metadata"]
    return str(metadata.get("namespace") or "default"), str(metadata["name"])


def _own(env: Any) -> list[Json]:
    """The variables that people set."""
    return [each for each in env or () if isinstance(each, dict) and not str(each.get("name")).startswith(_INSIDE)]


def serve(part: Part) -> None:
    """Sets the values by which the agent serves claims with the classes that are there."""
    part.take("dra.enabled", True)
    part.take("dra.classes.create", False)


def layout(selector: dict[str, str], gpus: int | None) -> Step:
    """The step that gives GPUs to claims. ``gpus``: of each node; None: no file tells it."""
    manifest = {
        "apiVersion": "tessera.dev/v1alpha1",
        "kind": "GpuLayout",
        "metadata": {"name": "claims"},
        "spec": {
            "nodeSelector": selector or {"kubernetes.io/os": "linux"},
            "layout": [{"gpus": {"any": gpus or _GPUS}, "mode": "dra", "whenBusy": "wait"}],
        },
    }
    return applied(say.claim_layout(gpus, _GPUS), manifest, f"{LAYOUT}/claims")


def gpus_of(inputs: Inputs) -> int | None:
    """The least number of GPUs of a node by ResourceSlices of NVIDIA's driver, else by feature discovery's labels."""
    counted = Counter[str]()
    for each in inputs.claims:
        spec = each.data.get("spec")
        if each.kind == "ResourceSlice" and isinstance(spec, dict) and spec.get("driver") == DRIVER:
            devices = spec.get("devices") if isinstance(spec.get("devices"), list) else []
            names = [str(device.get("name")) for device in devices or () if isinstance(device, dict)]
            whole = [name for name in names if name.startswith("gpu-") and "-mig-" not in name and "vfio" not in name]
            counted[str(spec.get("nodeName"))] += len(whole)
    labels = [each.data["metadata"].get("labels") or {} for each in inputs.nodes]
    told = [str(each.get("nvidia.com/gpu.count", "")) for each in labels if isinstance(each, dict)]
    numbers = list(counted.values()) or [int(each) for each in told if each.isdigit()]
    return min((each for each in numbers if each > 0), default=None)


def gates(where: str, found: Any, part: Part) -> None:
    """Feature gates that are on."""
    for name, is_on in (found or {}).items() if isinstance(found, dict) else ():
        if is_on and name not in _DONE_ANYHOW:
            part.lose(f"{where}[{name}]", GATES.get(name, say.NO_GATE))


def _chart(values: Json, part: Part) -> None:
    chart = "DRA driver's chart"
    apply(values, CLAIMS, chart, part)
    gates(f"{chart}: featureGates", values.get("featureGates"), part)
    for path, ours in (
        ("nvidiaDriverRoot", "nvidiaDriverRoot"),
        ("nvidiaCDIHookPath", "cdi.nvidiaHookPath"),
        ("nvidiaCtkPath", "cdi.nvidiaHookPath"),
    ):
        value = values.get(path)
        if isinstance(value, str) and value.startswith("/"):
            if value != "/":
                part.take(ours, value)
        elif value:
            part.lose(f"{chart}: {path}", say.NO_PATH)
    if tolerations := given(values, "kubeletPlugin.tolerations"):
        part.tolerates(tolerations)


def objects(inputs: Inputs, part: Part) -> None:
    """Claims, classes, ComputeDomains: what stays, and the configurations that are not served."""
    unchanged = Counter[str]()
    for document in inputs.claims:
        if document.kind == "ResourceSlice":
            continue
        wrong = list(_refused(document))
        part.loses(Told(f"{document.kind} {_name(document)}", why) for why in wrong)
        if document.group == "resource.nvidia.com":
            part.keep(f"{document.kind} {_name(document)}", say.DOMAINS)
        elif not wrong:
            unchanged[document.kind] += 1
    part.keeps(Told(f"{kind} ({count})", say.CLAIM_OBJECTS) for kind, count in sorted(unchanged.items()))


def _name(document: Document) -> str:
    metadata = document.data["metadata"]
    return "/".join(str(metadata[key]) for key in ("namespace", "name") if metadata.get(key))


def _refused(document: Document) -> Iterator[str]:
    """Sentences about the opaque configurations for GPUs that the agent refuses; and a class that it has not."""
    spec: Any = document.data.get("spec")
    if document.kind == "DeviceClass" and document.data["metadata"].get("name") == "vfio.gpu.nvidia.com":
        yield say.NO_PASSTHROUGH
    if document.kind == "ResourceClaimTemplate" and isinstance(spec, dict):
        spec = spec.get("spec")
    devices = spec.get("devices") if isinstance(spec, dict) else None
    listed = [spec.get("config")] if document.kind == "DeviceClass" and isinstance(spec, dict) else []
    listed += [devices.get("config")] if isinstance(devices, dict) else []
    for each in [one for configs in listed if isinstance(configs, list) for one in configs if isinstance(one, dict)]:
        opaque = each.get("opaque")
        if not isinstance(opaque, dict) or opaque.get("driver") != DRIVER:
            continue
        source = "FromClass" if document.kind == "DeviceClass" else "FromClaim"
        parameters = opaque.get("parameters")
        mig = isinstance(parameters, dict) and parameters.get("kind") == "MigDeviceConfig"
        try:
            text = msgspec.json.encode({"source": source, "opaque": opaque})
            check(msgspec.json.decode(text, type=Config), mig=mig)
        except (ClaimError, msgspec.ValidationError) as wrong:
            yield str(wrong)
