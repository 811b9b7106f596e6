"""The queries of ``tessera advise`` to Prometheus, and their answers as ContainerDevices.

Series of one device and container are joined by the labels that name them, not by the agent's address, which an agent's
restart changes.
"""

import math
from collections.abc import Mapping

import click

from cli.advise.advice import ContainerDevices, Product, Used
from cli.words import servers as say
from inventory.devices import MigProfile
from kube.prometheus import Labels, NotLetInError, Prometheus, PrometheusError, UntrustedError, Vector
from simulator.boards import products

TIMEOUT_S = 120.0
"""The time limit of a query in seconds: a week's percentiles of a large fleet take Prometheus a while."""
STEPS = 200
_PLACE = ("Hostname", "hostname", "UUID", "GPU_I_ID", "GPU_I_PROFILE")
_CONTAINER = ("namespace", "pod", "container")
_DEVICE = (*_PLACE, *_CONTAINER)
_BY = ", ".join(_DEVICE)
_FIGURES = ("sm", "dram", "busy", "memory", "most", "empty", "used")


async def ask(prometheus: Prometheus, queries: Mapping[str, str]) -> dict[str, Vector]:
    """The answers to the queries, by name. Raises click.ClickException with one line."""
    try:
        return await prometheus.ask(queries)
    except UntrustedError as failed:
        raise click.ClickException(say.untrusted(str(failed))) from None
    except NotLetInError as failed:
        raise click.ClickException(say.token_refused(str(failed))) from None
    except PrometheusError as failed:
        raise click.ClickException(str(failed)) from None


def queries(window_s: float, namespace: str | None) -> dict[str, str]:
    """The queries by name; ``allocation`` is of now, the others of the window."""
    window = f"{max(1, round(window_s))}s"
    step = f"{max(1, round(window_s / STEPS))}s"
    mine = f'namespace="{_quoted(namespace)}"' if namespace else ""
    pods = f'{{{mine + ", " if mine else ""}owner="pod"}}'
    empty, used = (f'{pods[:-1]}, use{sign}"empty"}}' for sign in ("=", "!="))
    alone = f'{{{mine + ", " if mine else ""}pod!=""}}'
    ours = f"{{{mine}}}" if mine else ""
    models = "DCGM_FI_DEV_XID_ERRORS|DCGM_FI_DEV_POWER_USAGE|DCGM_FI_DEV_FB_USED"
    device = "Hostname, hostname, UUID"
    return {
        "there": "count(tessera_gpu_busy_ratio) or count(tessera_agent_info)",
        "renamed": 'count(tessera_gpu_allocation{exported_pod!=""})',
        "allocation": f"max by ({_BY}, resource, mode) (tessera_gpu_allocation{ours})",
        "age": f"time() - min by ({_BY}, resource, mode)"
        f" (min_over_time(timestamp(tessera_gpu_allocation{ours})[{window}:{step}]))",
        # GPM's figures, where the container is alone on the device: the share of SMs, and of the memory's bandwidth.
        "sm": f"max by ({_BY}) (quantile_over_time(0.95, DCGM_FI_PROF_SM_ACTIVE{alone}[{window}]))",
        "dram": f"max by ({_BY}) (quantile_over_time(0.95, DCGM_FI_PROF_DRAM_ACTIVE{alone}[{window}]))",
        "busy": f"max by ({_BY}) (quantile_over_time(0.95, tessera_pod_gpu_busy_ratio{pods}[{window}]))",
        "memory": f"max by ({_BY}) (quantile_over_time(0.95, tessera_pod_gpu_memory_used_bytes{pods}[{window}]))",
        "most": f"max by ({_BY}) (max_over_time(tessera_pod_gpu_memory_used_bytes{pods}[{window}]))",
        "empty": f"sum by ({_BY}) (count_over_time(tessera_pod_gpu_use{empty}[{window}]))",
        "used": f"sum by ({_BY}) (count_over_time(tessera_pod_gpu_use{used}[{window}]))",
        "models": f'group by ({device}, modelName) ({{__name__=~"{models}", modelName!=""}})',
        "sizes": f'sum by ({device}, modelName) (DCGM_FI_DEV_FB_USED{{GPU_I_ID=""}})'
        f' + on ({device}, modelName) max by ({device}, modelName) (DCGM_FI_DEV_FB_FREE{{GPU_I_ID=""}})',
    }


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def check(url: str, found: Mapping[str, Vector]) -> None:
    """Raises click.ClickException where the series are not there, or not as they should be."""
    if not found["there"]:
        raise click.ClickException(say.no_agents_series(url))
    if found["renamed"]:
        raise click.ClickException(say.labels_renamed(url))


def requests(found: Mapping[str, Vector]) -> list[ContainerDevices]:
    """The requests in the answers to ``queries``: one for each container, resource and mode."""
    figures = {name: {_key(labels): value for labels, value in found[name]} for name in _FIGURES}
    models = {_gpu(labels): labels["modelName"] for labels, _ in found["models"]}
    ages = {(_key(labels), labels.get("resource"), labels.get("mode")): age for labels, age in found["age"]}
    devices: dict[tuple[str, ...], list[tuple[Used, float]]] = {}
    for labels, share in sorted(found["allocation"], key=lambda series: sorted(series[0].items())):
        key, resource, mode = _key(labels), labels.get("resource", ""), labels.get("mode", "")
        used = Used(
            share=share,
            profile=labels.get("GPU_I_PROFILE", ""),
            activity_p95=_activity(figures, key),
            memory_p95_mib=_mib(_figure(figures["memory"], key)),
            memory_max_mib=_mib(_figure(figures["most"], key)),
            empty=key in figures["empty"] and key not in figures["used"],
        )
        whose = tuple(labels.get(name, "") for name in _CONTAINER)
        group = (*whose, resource, mode, models.get(_gpu(labels), ""))
        devices.setdefault(group, []).append((used, ages.get((key, resource, mode), 0.0)))
    return [
        ContainerDevices(
            namespace=namespace,
            pod=pod,
            container=container,
            resource=resource,
            mode=mode,
            product=product,
            devices=tuple(used for used, _ in each),
            age_s=min(age for _, age in each),
        )
        for (namespace, pod, container, resource, mode, product), each in devices.items()
    ]


def known_products(found: Mapping[str, Vector]) -> dict[str, Product]:
    """The products by model name: geometry from the product where it is known, else the measured memory,
    without MIG.
    """
    measured = {labels["modelName"]: size for labels, size in found["sizes"]}
    names = {labels["modelName"] for labels, _ in found["models"]}
    return {name: _product(name) or Product(name, measured.get(name, 0.0)) for name in names}


def _product(name: str) -> Product | None:
    one = products.PRODUCTS.get(name)
    if one is None:
        return None
    profiles = tuple(
        MigProfile(each.name, each.id, each.slices, each.size, each.starts, each.count, each.memory_mib, each.sms)
        for each in one.mig
    )
    return Product(name, float(one.memory_mib), profiles)


def _key(labels: Labels) -> tuple[str, ...]:
    return tuple(labels.get(name, "") for name in _DEVICE)


def _gpu(labels: Labels) -> tuple[str, ...]:
    return tuple(labels.get(name, "") for name in ("Hostname", "hostname", "UUID"))


def _figure(figures: Mapping[tuple[str, ...], float], key: tuple[str, ...]) -> float | None:
    value = figures.get(key)
    return None if value is None or math.isnan(value) else value


def _activity(figures: Mapping[str, Mapping[tuple[str, ...], float]], key: tuple[str, ...]) -> float | None:
    """The activity that a smaller device must offer: SMs and bandwidth where GPM tells them, else the share of time in
    which anything ran.
    """
    sm = _figure(figures["sm"], key)
    return _figure(figures["busy"], key) if sm is None else max(sm, _figure(figures["dram"], key) or 0.0)


def _mib(size_bytes: float | None) -> float | None:
    return None if size_bytes is None else size_bytes / (1 << 20)
