"""A node with an API server in this process, and the hand of the controller that grants repairs there."""

import datetime as dt
from typing import Any, Final

from agent.cluster.apireporter import ApiReporter
from agent.cluster.gpunode import GPU_NODES
from agent.health.states import Transition
from deviceplugin.testing import Endpoint
from inventory.api.names import REMEDIATION_ORDER
from kube.resources import NODES
from kube.testing import FakeApiServer
from tests.support.agent.node import GPU, Lab

NODE: Final = "node-1"
CONTROLLER: Final = "tessera-controller"


class Told(ApiReporter):
    """A reporter to the API server that the lab's notebook hears as well."""

    lab: Lab

    def transition(self, change: Transition) -> None:
        self.lab.reporter.transition(change)
        super().transition(change)

    def warning(self, reason: str, action: str, text: str) -> None:
        self.lab.reporter.warning(reason, action, text)
        super().warning(reason, action, text)

    def note(self, reason: str, action: str, text: str) -> None:
        self.lab.reporter.note(reason, action, text)
        super().note(reason, action, text)


class GrantedNode:
    """The lab's node with the server. ``grants`` are those that stand in the GpuNode, as the controller wrote them."""

    def __init__(self, lab: Lab, server: FakeApiServer) -> None:
        self.lab = lab
        self.server = server
        self.grants: list[dict[str, Any]] = []
        server.create(NODES, NODE, {"metadata": {"labels": {"kubernetes.io/hostname": NODE}}})
        kubeconfig = lab.folder / "kubeconfig"
        kubeconfig.write_text(
            "apiVersion: v1\nkind: Config\ncurrent-context: test\n"
            f"clusters: [{{name: test, cluster: {{server: '{server.config.server}'}}}}]\n"
            "contexts: [{name: test, context: {cluster: test, user: test}}]\nusers: [{name: test, user: {}}]\n"
        )
        lab.flags["--kubeconfig"] = str(kubeconfig)

    async def start(self, config: str) -> None:
        reporter = Told(self.lab.settings(config))
        reporter.lab = self.lab
        await self.lab.start(config, reporter=reporter)

    async def serve(self, text: str, config: str, *, resource: str = GPU) -> Endpoint:
        """Hardware, kubelet and agent, up to the first list of ``resource``, and a GpuNode."""
        self.lab.power_on(text)
        await self.lab.kubelet.start()
        await self.start(config)
        endpoint = await self.lab.listed(resource)
        await self.lab.until(lambda: self.status() != {}, "a GpuNode")
        return endpoint

    async def restart(self, config: str) -> None:
        await self.lab.stop()
        await self.start(config)

    def status(self) -> dict[str, Any]:
        """The status of the GpuNode; empty where there is none."""
        found: dict[str, Any] = next((body["status"] for body in self.server.list_all(GPU_NODES)), {})
        return found

    def repair(self, index: int) -> dict[str, Any]:
        """The repair of a GPU as the GpuNode has it; empty for none."""
        repairs = self.status().get("repairs", ())
        return next((one for one in repairs if one["gpu"] == self.lab.uuid(index)), {})

    def answer(self, index: int) -> str:
        """The answer to the last order for a GPU; empty for none."""
        answers = self.status().get("orderAnswers", ())
        return next((one["answer"] for one in answers if one["gpu"] == self.lab.uuid(index)), "")

    def asks(self, index: int) -> str:
        return str(self.repair(index).get("asks", ""))

    def grant(self, index: int, *, ago_s: float = 0.0, **changes: Any) -> None:
        """Grant what the GPU's repair asks for, but for the fields in ``changes``."""
        granted = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=ago_s)
        asked = self.repair(index)
        entry = {
            "gpu": self.lab.uuid(index),
            "generation": asked.get("generation", 0),
            "action": asked.get("asks", ""),
            "granted": granted.isoformat(),
        }
        self.write_grants([*self.grants, {**entry, **changes}])

    def write_grants(self, grants: list[Any]) -> None:
        self.grants = grants
        self.server.apply(GPU_NODES, NODE, {"status": {"remediationGrants": grants}}, manager=CONTROLLER)

    def order(self, index: int, order: str) -> None:
        self.order_of(self.lab.uuid(index), order)

    def order_of(self, uuid: str, order: str) -> None:
        annotations = {f"{REMEDIATION_ORDER}{uuid}": order}
        self.server.merge(GPU_NODES, NODE, {"metadata": {"annotations": annotations}}, manager="kubectl")

    def orders(self) -> dict[str, str]:
        """The orders that stand in the GpuNode, by UUID."""
        annotations = self.server.get(GPU_NODES, NODE)["metadata"].get("annotations", {})
        return {
            key.removeprefix(REMEDIATION_ORDER): value
            for key, value in annotations.items()
            if key.startswith(REMEDIATION_ORDER)
        }
