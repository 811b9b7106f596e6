"""AdmissionChecks that request nodes: which are ours, and what their condition Active says."""

from typing import Any

import pytest

from controller.objects.decode import decode
from controller.objects.provisioning import PROVISIONING, ProvisioningRequestConfig
from controller.objects.queues import AdmissionCheck
from controller.reconcile.provisioning.checks import active, is_ours

CONFIGS = {"c": decode({"metadata": {"name": "c"}, "spec": {"provisioningClassName": "k"}}, ProvisioningRequestConfig)}
GOOD = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "c"}


def check(parameters: dict[str, Any] | None, controller: str = PROVISIONING) -> AdmissionCheck:
    spec = {"controllerName": controller, "parameters": parameters}
    return decode({"metadata": {"name": "make", "generation": 3}, "spec": spec}, AdmissionCheck)


@pytest.mark.parametrize(
    ("parameters", "served", "status", "reason", "says"),
    [
        (GOOD, True, "True", "Active", "active"),
        (GOOD, False, "False", "ProvisioningRequestsNotServed", "autoscaling.x-k8s.io/v1 are not served"),
        (None, True, "False", "BadParametersRef", "has no parameters. Set spec.parameters"),
        (GOOD | {"apiGroup": "x.io"}, True, "False", "BadParametersRef", "apiGroup is x.io. Set it to kueue.x-k8s.io"),
        (GOOD | {"kind": "Other"}, True, "False", "BadParametersRef", "spec.parameters.kind is Other"),
        (GOOD | {"name": "d"}, True, "False", "BadParametersRef", "no ProvisioningRequestConfig d"),
    ],
)
def test_a_check_is_active_if_it_names_a_configuration_and_requests_are_served(
    parameters: dict[str, Any] | None, served: bool, status: str, reason: str, says: str
) -> None:
    found = active(check(parameters), CONFIGS, served=served, now_s=0.0)
    assert (found.type, found.status, found.reason, found.observed_generation) == ("Active", status, reason, 3)
    assert says in found.message


def test_a_check_of_another_controller_is_not_ours() -> None:
    assert is_ours(check(GOOD))
    assert not is_ours(check(GOOD, "example.com/nodes"))
    assert not is_ours(None)
