"""The plan for what was read: values of Tessera's chart, what is lost, what stays, the steps with their way back.

Pure: parsed inputs in, a plan out.
"""

from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from cli.migrate.chartvalues import given
from cli.migrate.claims import claims
from cli.migrate.foreign.part import foreign
from cli.migrate.inputs import Inputs, image_of
from cli.migrate.kueue import kueue
from cli.migrate.nvidia import beside, node_labels, programs
from cli.migrate.operator import gpu_cluster, policy_of_chart, with_operator
from cli.migrate.parts import Part, Step, Told, merged
from cli.migrate.steps import NAMESPACE, RELEASE, copied, crds, installed, missing_crds, namespace, upgraded
from cli.words import migrating as say
from controller.insight.simulation.documents import Document, InputError
from inventory.api.names import REPLACED

_LEFT_BY_PLUGIN = {"nvidia.com/gpu.deploy.device-plugin": "false"}
"""Where the agents go if nothing was read about what serves GPUs today: to nodes that were told to leave it."""


class MigrationPlan(Struct, frozen=True):
    """``values`` are for ``helm template charts/tessera -f -``; ``steps`` in their order."""

    values: dict[str, Any] = {}
    steps: list[Step] = []
    lost: list[Told] = []
    kept: list[Told] = []

    def validate(self) -> None:
        """Raises AssertionError where a thing is told twice, or a step has no command or no way back."""
        assert all(each.command and each.undo and each.do for each in self.steps)
        assert all(each.what and each.why for each in [*self.lost, *self.kept])
        assert len({(each.what, each.why) for each in self.lost}) == len(self.lost)
        assert len({(each.what, each.why) for each in self.kept}) == len(self.kept)
        assert not {(each.what, each.why) for each in self.lost} & {(each.what, each.why) for each in self.kept}
        commands = [each.command for each in self.steps]
        assert len(set(commands)) == len(commands)


def obeyed(policies: list[Document]) -> Document | None:
    """The first ClusterPolicy, or GPUCluster, that the operator does not ignore: it obeys one."""
    found = [each for each in policies if (each.data.get("status") or {}).get("state") != "ignored"] or policies
    return found[0] if found else None


def policies_of(inputs: Inputs) -> list[Document]:
    """The ClusterPolicies: objects, else those that the operator's chart makes."""
    return inputs.policies or [policy_of_chart(each) for each in inputs.chart("gpu-operator")]


def planned(inputs: Inputs, *, image: str = "", nodes: tuple[str, ...] = ()) -> MigrationPlan:
    """The plan for inputs whose values are all allowed. A Tessera that is there already is upgraded.

    ``image``: where the agent's image is; empty: the chart's default. ``nodes``: these nodes alone move, by their
    labels; empty: all at once.

    Raises InputError where agents are there already, in another place than the plan's.
    """
    if inputs.release:
        inputs = replace(inputs, workloads=[each for each in inputs.workloads if not _is_held(each)])
    parts = _parts(inputs, nodes)
    agent = any(each.agent for each in parts)
    if inputs.release and parts and not agent:
        # The agents that are there keep their values: nothing that serves GPUs goes.
        parts = [each for each in parts if each.queues]
        if not parts:
            return MigrationPlan(kept=[Told(_RELEASE, say.INSTALLED)])
    if not parts:
        more = [node_labels(inputs), beside(inputs)]
        return MigrationPlan(
            lost=[told for each in more for told in each.lost], kept=[told for each in more for told in each.kept]
        )
    values = _values(parts, inputs, image)
    if inputs.release and agent:
        _fits(values, inputs.release)
    lost = [each for part in parts for each in part.lost]
    staying = [each for part in parts for each in part.kept]
    if inputs.release:
        staying += [Told(_RELEASE, say.UPGRADED)]
        staying += [Told(_CONTROLLER, say.POLICY_STAYS)] if _has_controller(inputs) else []
    elif not agent:
        staying.append(Told(say.GPUS_ON_NODES, say.AGENT_WAITS))
        staying += [Told(what, say.GOES_ON) for part in parts for what, _ in part.followers]
    plan = MigrationPlan(
        values, _steps(parts, values, inputs, agent=agent, nodes=nodes), list(dict.fromkeys(lost)),
        list(dict.fromkeys(staying)),
    )  # fmt: skip
    plan.validate()
    return plan


_RELEASE = f"release {RELEASE} in {NAMESPACE}"
_CONTROLLER = f"controller of {_RELEASE}"


def _values(parts: list[Part], inputs: Inputs, image: str) -> dict[str, Any]:
    """Values for the chart; of a release that is there those alone that change."""
    values = merged([{"image": _image(image)} if image else {}, *(each.values for each in parts)])
    if inputs.release:
        if _has_controller(inputs):
            values.get("controller", {}).pop("policy", None)
        return values
    if not any(each.queues for each in parts):
        values["controller"] = {"enabled": False}
    if not any(each.agent for each in parts):
        values["nodeSelector"] = dict(_LEFT_BY_PLUGIN)
        values.pop("affinity", None)
    return values


def _has_controller(inputs: Inputs) -> bool:
    return any(each.kind == "Deployment" for each in inputs.release)


def _is_held(document: Document) -> bool:
    """Whether a step of an earlier plan has taken the pods of a DaemonSet."""
    return REPLACED in (given(document.data, "spec.template.spec.nodeSelector") or {})


def _fits(values: dict[str, Any], release: list[Document]) -> None:
    """Raises InputError unless the agents that are there wait for the label that the plan's would wait for: others
    would leave nodes, or come to nodes that somebody serves.
    """
    places = [given(each.data, "spec.template.spec.nodeSelector") for each in release if each.kind == "DaemonSet"]
    if not (places and values.get("nodeSelector") and all(each == values["nodeSelector"] for each in places)):
        raise InputError(say.other_agents(_RELEASE))


def _image(reference: str) -> dict[str, str]:
    """An image's reference as the chart takes it."""
    return {key: value for key, value in asdict(image_of(reference)).items() if value}


def _parts(inputs: Inputs, nodes: tuple[str, ...]) -> list[Part]:
    parts: list[Part] = []
    policy, cluster = obeyed(policies_of(inputs)), obeyed(inputs.gpu_clusters)
    if policy is not None:
        parts += with_operator(policy, inputs, nodes)
    elif cluster is not None:
        parts.append(gpu_cluster(cluster, inputs, nodes))
    else:
        parts.append(programs(inputs))
    if cluster is None:
        parts.append(claims(inputs))
    parts += [kueue(inputs), foreign("volcano", inputs), foreign("kai", inputs)]
    parts = [each for each in parts if not each.is_empty]
    more = [node_labels(inputs), beside(inputs)]
    return [*parts, *(each for each in more if not each.is_empty)] if parts else []


def _labels(inputs: Inputs) -> dict[str, str] | None:
    """The labels of Tessera's namespace, where it was read."""
    found = (each.data["metadata"] for each in inputs.namespaces)
    return next((each.get("labels") or {} for each in found if each.get("name") == NAMESPACE), None)


def _steps(
    parts: list[Part], values: dict[str, Any], inputs: Inputs, *, agent: bool, nodes: tuple[str, ...]
) -> list[Step]:
    """All steps in their order.

    Two device plugins never own a resource of a node together, and two controllers never decide about one queue: what
    runs today goes first. On single nodes the agents wait instead, for the label by which the operator's part leaves.
    """
    queues, has_kueue = any(each.queues for each in parts), any(each.kueue for each in parts)
    every = namespace(_labels(inputs)) if not inputs.release else []
    copies = dict.fromkeys(each for part in parts for each in part.copies)
    every += [copied(*each) for each in copies if each[0] != NAMESPACE]
    every += [step for part in parts for step in part.made]
    if not inputs.release:
        every.append(crds(own_alone=not queues or has_kueue))
    elif queues and not has_kueue and not _has_controller(inputs):
        every.append(missing_crds(values))
    every += [step for part in parts for step in part.first]
    words = say.INSTALL_THERE if nodes else say.INSTALL
    if queues:
        words = say.INSTALL_BOTH if agent else say.INSTALL_CONTROLLER
    every.append(upgraded(values) if inputs.release else installed(values, words))
    every += [step for part in parts for step in part.last]
    every += [step for part in parts for _, step in part.followers if agent]
    return list({step.command: step for step in every}.values())
