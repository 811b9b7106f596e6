"""Sentences about mistakes in options, arguments and files."""

from cli.words.quoting import quoted
from inventory.words.catalog import Kind, Place, said

_refusal = said(Place.COMMANDS, Kind.REFUSAL)
_part = said(Place.COMMANDS, Kind.PART)


@_refusal
def bad_service(found: str) -> str:
    return f"found {quoted(found)}, expected NAMESPACE/SERVICE"


@_refusal
def bad_server(found: str) -> str:
    return f"found {quoted(found)}, expected https://HOST or https://HOST:PORT"


@_refusal
def bad_value(found: str, expected: str) -> str:
    return f"found {quoted(found)}, expected {expected}"


@_refusal
def bad_duration(found: str) -> str:
    return f"found {quoted(found)}, expected a duration such as 90s or 2h30m"


@_refusal
def bad_moment(found: str) -> str:
    return f"found {quoted(found)}, expected a time such as 2026-01-05T18:00:00Z"


@_refusal
def bad_year(found: str, first: int, last: int) -> str:
    return f"found {quoted(found)}, expected a time of the years {first} to {last}"


@_refusal
def bad_window(found: str) -> str:
    return f"found {quoted(found)}, expected a duration such as 7d, 12h or 1h30m"


@_refusal
def empty_window() -> str:
    return "found 0s, expected a duration above 0"


@_refusal
def timeout_without_wait() -> str:
    return "--timeout: found one, expected --wait with it"


@_refusal
def not_admitted_in_time(seconds: str, workloads: str) -> str:
    return f"after {seconds} s not admitted: {workloads}. They wait on. See tessera explain WORKLOAD"


@_refusal
def bad_name(found: str) -> str:
    return f"found {quoted(found)}, expected NAME or NAMESPACE/NAME"


@_refusal
def bad_queue_name(found: str) -> str:
    return f"found {quoted(found)}, expected a ClusterQueue, or NAMESPACE/NAME of a LocalQueue"


@_refusal
def bad_local_queue(found: str) -> str:
    return f"--local: found {quoted(found)}, expected NAMESPACE/NAME"


@_refusal
def bad_job(found: str) -> str:
    return f"--for: found {quoted(found)}, expected TYPE/NAME such as job/bert"


@_refusal
def queue_and_local() -> str:
    return "--queue and --local: found both, expected one"


@_refusal
def file_without_pack() -> str:
    return "--file: found one, expected --pack with it"


@_refusal
def nothing_to_advise_by() -> str:
    return "--prometheus: found none, expected its URL, or --pack"


@_part
def unreadable_option(option: str, problem: str) -> str:
    return f"{option}: {problem}"


@_refusal
def workloads_or_all(found: str) -> str:
    return f"WORKLOAD, --all: found {found}, expected one of them"


@_refusal
def no_kubeconfig(path: object) -> str:
    return f"{path}: found no such file, expected a kubeconfig file (--kubeconfig, or $KUBECONFIG)"


@_refusal
def no_manifest(path: object, endings: str) -> str:
    return f"{path}: found no manifest, expected files ending in {endings}"


@_refusal
def nothing_in_it(file: object) -> str:
    expected = "objects with apiVersion, kind and metadata"
    return f"{file}:1: found nothing in the file, expected {expected}. Write one, or leave the file out"


@_part
def runs_on_no_node(sentence: str) -> str:
    return f"in a cluster it would hold its quota and never run. {sentence}"


@_refusal
def nothing_decides(file: object) -> str:
    expected = "queues, flavors, nodes or jobs"
    return f"{file}: found nothing that anything is decided by, expected {expected}. Name their files"


@_refusal
def no_job_is_queued() -> str:
    return "MANIFESTS: found no job that names a queue, expected one. Correct what the warnings name"


@_refusal
def unreadable(file: object, why: str) -> str:
    return f"{file}: found {why}, expected a readable file"


@_refusal
def unknown_field(problem: str) -> str:
    return f"{problem}. Correct it, or use --allow-unknown-fields to pass over it"


@_refusal
def agents_read_it(file: object) -> str:
    return f"{file}: found an agent's configuration, expected a GpuLayout: its agents read the file"


@_refusal
def empty_layout(file: object) -> str:
    return f"{file}: found an empty file, expected a GpuLayout or an agent's configuration"


@_refusal
def no_layout(file: object, kind: object) -> str:
    return f"{file}: kind: found {kind}, expected GpuLayout, or an agent's configuration"


@_refusal
def bad_layout(file: object, problem: str) -> str:
    return f"{file}: {problem}. Correct the layout"


@_refusal
def unknown_kind(file: object, version: str, kind: str) -> str:
    return f"{file}: found {kind} of {version}, expected a kind that the API server has. Correct it, or install its CRD"


@_refusal
def policy_fails(policy: str, why: str) -> str:
    return f"found an object that the policy {policy} cannot read ({why}), expected a complete one. Correct it"


@_refusal
def not_written(path: object, why: str) -> str:
    return f"{path}: cannot be written: {why}. Use another path"


@_refusal
def port_taken(port: object, why: str) -> str:
    return f"127.0.0.1:{port}: {why}, expected a port that is free (--port)"


@_refusal
def fleet_and_manifests(found: str) -> str:
    return f"found {found} alone, expected --fleet FILE and MANIFESTS together, or neither"
