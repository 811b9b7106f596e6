"""Sentences on checks that request nodes: states of admission checks, AdmissionChecks, Events of Workloads."""

from inventory.words.catalog import Kind, Place, because, plural, said

_note = said(Place.CHECKS, Kind.NOTE)
_waiting = said(Place.CHECKS, Kind.WAITING)
_refusal = said(Place.CHECKS, Kind.REFUSAL)


@_note
def check_active() -> str:
    return "The admission check is active"


@_refusal
def no_parameters() -> str:
    return "The check has no parameters. Set spec.parameters to a ProvisioningRequestConfig of kueue.x-k8s.io"


@_refusal
def wrong_parameters(field: str, found: str, expected: str) -> str:
    return f"The check's spec.parameters.{field} is {found}. Set it to {expected}"


@_refusal
def no_config(name: str) -> str:
    return f"There is no ProvisioningRequestConfig {name}. Create it, or correct spec.parameters.name"


@_refusal
def requests_not_served() -> str:
    return (
        "ProvisioningRequests of autoscaling.x-k8s.io/v1 are not served. "
        "Start Cluster Autoscaler with --enable-provisioning-requests and install its CRD"
    )


@_waiting
def check_not_active() -> str:
    return "The check is not active"


@_note
def not_needed() -> str:
    return "No nodes need to be requested for this workload"


@_note
def found_without() -> str:
    return "Its pods have places on nodes that are there: no nodes are requested any more"


@_waiting
def requested(request: str, class_name: str) -> str:
    return f"ProvisioningRequest {request} of class {class_name} waits for an autoscaler to accept it"


@_waiting
def accepted(request: str, class_name: str) -> str:
    return f"ProvisioningRequest {request} of class {class_name} is accepted: its nodes are being provisioned"


@_waiting
def failed(why: str) -> str:
    return f"Retrying after failure{because(why)}"


@_waiting
def expired(why: str) -> str:
    return f"Retrying after booking expired{because(why)}"


@_waiting
def revoked(why: str) -> str:
    return f"Retrying after capacity was revoked{because(why)}"


@_waiting
def next_flavor(flavors: str, why: str) -> str:
    return f"Nodes of {flavors} were requested too often in vain: the next flavor is tried{because(why)}"


@_note
def created(request: str) -> str:
    return f"Created ProvisioningRequest {request}"


@_note
def placeholders_created(count: str) -> str:
    return f"Created {plural(count, 'placeholder')}, so that an autoscaler brings nodes for its pods"


@_waiting
def placeholder_refused(name: str, why: str) -> str:
    return f"Placeholder {name}, which makes an autoscaler bring a node, could not be created{because(why)}"


@_waiting
def claims_not_copied(template: str, why: str) -> str:
    return f"ResourceClaimTemplate {template} could not be copied for a placeholder{because(why)}"


@_waiting
def not_created(kind: str, name: str, why: str) -> str:
    return f"{kind} {name} could not be created{because(why)}"


@_note
def check_changed(check: str, before: str, after: str, message: str) -> str:
    return f"Admission check {check} went from {before} to {after}{because(message)}"
