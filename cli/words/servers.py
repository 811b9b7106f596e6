"""Sentences about servers that do not answer: the API server, the controller, an agent, Prometheus, the simulator."""

from cli.words.quoting import quoted
from inventory.words.catalog import Kind, Place, said

_refusal = said(Place.COMMANDS, Kind.REFUSAL)


@_refusal
def no_api_server(why: str) -> str:
    return f"the API server cannot be reached: {why}. See the kubeconfig and its context (--kubeconfig, --context)"


@_refusal
def kind_missing(what: str) -> str:
    return f"{what}: this cluster does not have the kind. Install Tessera's CRDs (docs/install.md)"


@_refusal
def not_let_in(problem: str) -> str:
    return f"{problem}: expected credentials in the kubeconfig that the API server takes"


@_refusal
def views_not_served(group: str) -> str:
    return f"{group} is not served here: expected the chart's controller.visibility.enabled"


@_refusal
def controller_gone(why: str) -> str:
    return f"the controller no longer answers: {why}. See its pods, and run the command again"


@_refusal
def agent_away(path: object, why: str) -> str:
    return f"{path}: {why}: no agent answers there. Start it, or use --state-dir"


@_refusal
def agent_refused(path: object, status: object, answer: str) -> str:
    return f"{path}: the agent answered {status}: {answer}. See its log"


@_refusal
def strange_agent(why: str) -> str:
    return f"the agent's answer is not understood ({why}). Use the command of the agent's own version"


@_refusal
def untrusted(problem: str) -> str:
    return f"{problem}, expected one that --ca-file vouches for"


@_refusal
def token_refused(problem: str) -> str:
    return f"{problem}, expected a --token-file that it accepts"


@_refusal
def no_agents_series(url: str) -> str:
    return (
        f"{url}: found neither tessera_gpu_busy_ratio nor tessera_agent_info, expected a Prometheus that scrapes"
        " Tessera's agents"
    )


@_refusal
def labels_renamed(url: str) -> str:
    return f"{url}: found the label exported_pod on tessera_gpu_allocation, expected agents scraped with honor_labels"


@_refusal
def no_gpu_node(node: str) -> str:
    return f"--node: found {quoted(node)}, expected a node whose agent has written a GpuNode"


@_refusal
def not_in_fleet(node: str, fleet: object, known: str) -> str:
    return f"--node: found {quoted(node)}, expected a node of {fleet}: {known}"


@_refusal
def no_kubectl(verb: str) -> str:
    return f"kubectl: found no such program in $PATH, expected one: tessera {verb} hands its words over to it"
