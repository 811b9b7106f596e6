"""Pods that hold GPUs which wait for their reset, and the PodDisruptionBudgets of their namespaces, read with the
caller's rights.

(client, GpuNodes) -> read_guards() -> Guards -> cli.remediation.repairs
"""

from collections.abc import Iterable
from typing import Final

from cli.access.cluster import told
from cli.printing.console import Json, aside
from cli.remediation.budgets import Budget, Guards, Holder
from cli.remediation.repairs import waiting_holders
from cli.words import remediation as say
from controller.objects.decode import DecodeError, GpuNode, decode
from kube.client import Client, Selection
from kube.errors import KubeError, NotFoundError
from kube.resources import PODS, Resource

BUDGETS: Final = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", namespaced=True)


async def read_guards(client: Client, nodes: Iterable[GpuNode], notes: list[str]) -> Guards:
    """The pods and budgets; a note, and nothing of a namespace, where they may not be read."""
    pods: dict[str, Holder] = {}
    budgets: list[Budget] = []
    spaces: dict[str, list[str]] = {}
    for key in sorted({key for node in nodes for key in waiting_holders(node)}):
        namespace, _, name = key.partition("/")
        spaces.setdefault(namespace, []).append(name)
    for namespace, names in spaces.items():
        try:
            found = (await client.list_all(BUDGETS, Json, Selection(namespace=namespace))).items
            budgets += [decode(each, Budget) for each in found]
            for name in names:
                try:
                    pods[f"{namespace}/{name}"] = decode(
                        await client.get(PODS, name, Json, namespace=namespace), Holder
                    )
                except NotFoundError:
                    continue  # it has gone since its node's agent wrote
        except (KubeError, DecodeError) as failed:
            why = told(failed) if isinstance(failed, KubeError) else str(failed)
            notes.append(say.budgets_unknown(namespace, why))
            aside(notes[-1])
    return Guards(pods=pods, budgets=tuple(budgets))
