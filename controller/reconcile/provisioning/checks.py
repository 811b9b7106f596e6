"""AdmissionChecks of the controller ``kueue.x-k8s.io/provisioning-request``: their configuration, whether they are
active.
"""

from collections.abc import Mapping
from typing import Final

from controller.messages import provisioning as words
from controller.objects.meta import Condition
from controller.objects.provisioning import PROVISIONING, ProvisioningRequestConfig
from controller.objects.queues import AdmissionCheck
from controller.scheduler.decisions.status import moment

ACTIVE: Final = "Active"
BAD_PARAMETERS: Final = "BadParametersRef"
NOT_SERVED: Final = "ProvisioningRequestsNotServed"
_GROUP: Final = "kueue.x-k8s.io"
_KIND: Final = "ProvisioningRequestConfig"


def is_ours(check: AdmissionCheck | None) -> bool:
    return check is not None and check.spec.controller_name == PROVISIONING


def config_of(
    check: AdmissionCheck, configs: Mapping[str, ProvisioningRequestConfig]
) -> ProvisioningRequestConfig | str:
    """The configuration that the check's parameters name; a sentence where they name none."""
    named = check.spec.parameters
    if named is None or not named.name:
        return words.no_parameters()
    if named.api_group != _GROUP:
        return words.wrong_parameters("apiGroup", named.api_group[:63] or "none", _GROUP)
    if named.kind != _KIND:
        return words.wrong_parameters("kind", named.kind[:63] or "none", _KIND)
    return configs.get(named.name) or words.no_config(named.name)


def active(
    check: AdmissionCheck, configs: Mapping[str, ProvisioningRequestConfig], *, served: bool, now_s: float
) -> Condition:
    """The condition Active. ``served``: whether there can be ProvisioningRequests in this cluster."""
    found = config_of(check, configs)
    status, reason, message = "True", ACTIVE, words.check_active()
    if isinstance(found, str):
        status, reason, message = "False", BAD_PARAMETERS, found
    elif not served:
        status, reason, message = "False", NOT_SERVED, words.requests_not_served()
    return Condition(
        type=ACTIVE,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=moment(now_s),
        observed_generation=check.metadata.generation,
    )
