"""A workload whose claims of devices cannot be counted is held back, told why, and queues once they can."""

from controller.objects.meta import find_condition
from controller.objects.workload import Workload
from controller.reconcile.lifecycle.lifecycle import Step, queue_policies, step
from controller.reconcile.lifecycle.pendingcause import held_back
from controller.scheduler.decisions import reasons
from controller.scheduler.decisions.reasons import PendingReason
from controller.scheduler.engine import Engine
from controller.scheduler.state.intake import WorkloadPhase, standing
from tests.support.engine.deviceclaims import asks, claiming, counting, template
from tests.support.engine.world import NOW_S

MISSING = (
    "Its claims of devices cannot be counted: pod set main: claim t0: there is no ResourceClaimTemplate ns/t. "
    "Correct what is named; it queues then"
)
UNMAPPED = (
    "Its claims of devices cannot be counted: pod set main: claim t0: ResourceClaimTemplate t: request r0: "
    "DeviceClass other is not mapped: resources.deviceClassMappings does not name it. "
    "Correct what is named; it queues then"
)


def next_step(engine: Engine, workload: Workload) -> Step | None:
    return step(workload, queue_policies(engine, workload), engine.state.config, NOW_S)


def told(workload: Workload, type_: str) -> tuple[str, str, str]:
    found = find_condition(workload.status.conditions, type_)
    assert found is not None
    return found.status, found.reason, found.message


def test_it_is_held_back_until_its_template_is_there() -> None:
    engine, workload = Engine(counting()), claiming("w", templates=["t"])
    held = next_step(engine, workload)
    assert held is not None
    assert told(held.after, reasons.QUOTA_RESERVED) == ("False", "Misconfigured", MISSING)
    assert told(held.after, reasons.REQUEUED) == ("False", "Inadmissible", MISSING)
    assert held.after.status.requeue_state is None
    assert standing(held.after, engine.state.config) is WorkloadPhase.HELD_BACK
    cause = held_back(held.after, engine.state.config.gates)
    assert cause == (PendingReason.MISCONFIGURED, MISSING)
    assert next_step(engine, held.after) is None, "it is told once"

    engine.put(template("t", asks("other")), NOW_S)
    other = next_step(engine, held.after)
    assert other is not None
    assert told(other.after, reasons.REQUEUED) == ("False", "Inadmissible", UNMAPPED)

    engine.put(template("t", asks()), NOW_S)
    freed = next_step(engine, other.after)
    assert freed is not None
    counted = ("True", "ClaimsCounted", "Its claims of devices can be counted now")
    assert told(freed.after, reasons.REQUEUED) == counted
    assert standing(freed.after, engine.state.config) is WorkloadPhase.PENDING
    assert next_step(engine, freed.after) is None


def test_what_holds_it_back_for_another_reason_is_left() -> None:
    engine, workload = Engine(counting()), claiming("w", templates=["t"])
    inactive = claiming("w", templates=["t"], active=False)
    stopped = next_step(engine, inactive)
    assert stopped is not None
    assert told(stopped.after, reasons.REQUEUED)[1] == "Deactivated"
    assert next_step(engine, stopped.after) is None
    assert next_step(engine, claiming("w")) is None
    assert next_step(Engine(counting(on=False, reject=False)), workload) is None
