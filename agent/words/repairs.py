"""Sentences about the repair of a GPU: Events of its node, log lines, ``tessera node health``."""

from inventory.words.catalog import Kind, Place, plural, said

_note = said(Place.HEALTH, Kind.NOTE)
_refusal = said(Place.HEALTH, Kind.REFUSAL)
_waiting = said(Place.HEALTH, Kind.WAITING)
_part = said(Place.HEALTH, Kind.PART)


@_refusal
def reboot_wanted(device: str, why: str) -> str:
    return f"{device}: a reboot is wanted: {why}. To do: drain the node and reboot it"


@_refusal
def retired(device: str, why: str) -> str:
    return f"{device}: retired: {why}. To do: have the board looked at; tessera node return, on the node, gives it back"


@_waiting
def not_begun(device: str, why: str) -> str:
    return f"{device}: the reset waits: {why}"


@_note
def over(device: str, seconds: str) -> str:
    return f"{device}: back in service {seconds} s after its fault"


@_waiting
def moved(device: str, state: str, note: str) -> str:
    return f"{device}: repair: {state}: {note}"


@_note
def ended(device: str, note: str) -> str:
    return f"{device}: repair ended: {note}"


@_part
def next_reset() -> str:
    return "it is reset once nobody has it"


@_part
def next_let() -> str:
    return "it is reset once the breaker of this node lets it, and nobody has it"


@_part
def next_verified() -> str:
    return "it is verified after the reset"


@_part
def next_probation() -> str:
    return "probation, if all is as before its fault"


@_part
def next_service() -> str:
    return "back in service after its probation"


@_part
def next_reboot() -> str:
    return "drain the node and reboot it"


@_part
def next_person() -> str:
    return "have the board looked at; tessera node return gives it back"


@_part
def next_drained() -> str:
    return "the controller lets the pods leave that hold it, then it is reset"


@_part
def next_granted() -> str:
    return "it is reset once the controller grants it"


@_part
def next_planned() -> str:
    return "the controller is asked for a reboot; or drain the node and reboot it"


@_part
def withheld(state: str) -> str:
    return f"it is in repair ({state}), until that is over"


@_part
def unrepaired_replace() -> str:
    return "it is not repaired: its board is to be replaced, which no reset does"


@_part
def unrepaired_no_reset() -> str:
    return "it is not repaired: the driver asks for no reset. Reset it by hand, or by tessera remediation start"


@_part
def unrepaired_stopped() -> str:
    return "it is not repaired: a person ended its repair; tessera remediation start begins another one"


@_part
def held_for_good(who: str) -> str:
    return f"{who}. Nobody asks pods to leave with remediation.reset: when-free. End them, or set drain"


@_part
def withheld_with(gpu: str) -> str:
    return f"it is reset together with {gpu}, which is in repair, until that is over"


@_part
def resetting(attempt: object) -> str:
    return f"nobody has it: reset, attempt {attempt}"


@_part
def reset() -> str:
    return "it was reset"


@_part
def verified() -> str:
    return "all is as before its fault"


@_part
def returned() -> str:
    return "it passed its probation"


@_part
def returned_as_ordered() -> str:
    return "it had no fault, and is as before"


@_part
def cleared() -> str:
    return "its faults are gone without us"


@_part
def not_any_more() -> str:
    return "its reset is not wanted, or not granted, any more"


@_part
def switched_off() -> str:
    return "remediation.reset is never now"


@_part
def reset_asked() -> str:
    return "nobody has it: the controller is asked for its reset"


@_part
def granted_by_nobody(label: str) -> str:
    return f"nobody has it, and by the node's label {label}=false the controller grants no reset"


@_part
def not_heard() -> str:
    return "nobody has it: this node's GpuNode has not been read yet, and its reset takes a grant that stands there"


@_note
def drain_alone() -> str:
    return "Without an API server remediation.reset: drain asks nobody to leave: a GPU is reset once nobody holds it"


@_refusal
def no_rights(source: str, found: str) -> str:
    return (
        f"{source}: remediation.reset: found {found}, expected never, since the agent has no SYS_ADMIN and SYS_PTRACE: "
        "nothing of its remediation holds. Set remediation.reset in the chart's values"
    )


@_part
def no_verifier(program: str) -> str:
    return f"remediation.verify.command: found {program}, expected a program that can be run on this node"


@_part
def by_order() -> str:
    return "its reset was ordered"


@_part
def retired_by_order() -> str:
    return "a person ordered that it stays out"


@_part
def board_gone() -> str:
    return "the GPU is gone from the node"


@_part
def stopped() -> str:
    return "a person ended the repair"


@_note
def order_started() -> str:
    return "It is reset once nobody has it"


@_note
def order_stopped() -> str:
    return "The repair is ended, until its faults are gone and come again"


@_note
def order_out() -> str:
    return "It is retired, until it is returned"


@_note
def order_returned() -> str:
    return "It is given back"


@_refusal
def order_unknown(found: str) -> str:
    return f"Found {found}, expected start, stop, retire or return. Correct the order"


@_refusal
def order_no_gpu() -> str:
    return "No GPU of this node has that UUID. Correct the order"


@_refusal
def order_never() -> str:
    return "This node has remediation.reset: never. Set it before a repair is ordered"


@_refusal
def order_before() -> str:
    return "It was written before this node took orders. See that it is still wanted, and order it again"


@_refusal
def order_in_repair(state: str) -> str:
    return f"It is in repair already ({state}). Use stop to end that, or retire to keep it out"


@_refusal
def order_too_late(state: str) -> str:
    return f"Found it in {state}, expected a repair that is not under way: order again when that has ended"


@_refusal
def order_no_repair() -> str:
    return "Found it not in repair, expected a repair that can be stopped"


@_refusal
def order_retired() -> str:
    return "It is retired. Use return to give it back"


@_refusal
def order_not_retired() -> str:
    return "Found it not retired, expected a retired GPU"


@_part
def given_back() -> str:
    return "a person gave it back"


@_part
def interrupted() -> str:
    return "the agent ended in the middle of a reset"


@_part
def interrupted_verifying() -> str:
    return "the agent ended while it was being verified"


@_part
def verified_first() -> str:
    return "it was reset, or the node rebooted, after resets that did not help: it is verified before it returns"


@_part
def too_often(cause: str, times: object, seconds: str) -> str:
    return f"{cause}, {times} times within {seconds} s"


@_part
def attempt_failed(attempt: object, why: str) -> str:
    return f"attempt {attempt} failed: {why}"


@_part
def attempts_over(attempts: object, why: str) -> str:
    return f"{plural(attempts, 'reset')} did not help, the last: {why}"


@_part
def breaker(gpus: object, minutes: object) -> str:
    return f"{plural(gpus, 'GPU')} of this node were reset in the last {minutes} minutes"


@_part
def held(who: str) -> str:
    return f"held by {who}"


@_part
def held_with(pod: str, index: object) -> str:
    return f"{pod} (on GPU {index}, which is reset together with it)"


@_part
def breaker_held(breaker: str, who: str) -> str:
    return f"{who}, and {breaker}"


@_part
def open_by(who: str) -> str:
    return f"its device file is open in {who}"


@_part
def open_by_stewards(who: str) -> str:
    return f"its device file is open in {who}, which watches GPUs and is not ended: stop it"


@_part
def not_looked_at() -> str:
    return "the processes of the node may not be looked at: the agent needs SYS_PTRACE and the host's /proc"


@_part
def holders_unknown() -> str:
    return "the kubelet does not report who holds devices"


@_part
def daemon_runs() -> str:
    return "its MPS daemon has not ended yet"


@_part
def mig_changes() -> str:
    return "its MIG instances are being changed"


@_part
def not_read(why: str) -> str:
    return f"NVML cannot read it: {why}"


@_part
def not_let_go(why: str) -> str:
    return f"the agent's own NVML session does not let go of it: {why}"


@_part
def no_journal(error: str) -> str:
    return f"the journal cannot be written: {error}"


@_part
def behind_switch() -> str:
    return "an A100 behind an NVSwitch is not reset alone: the fabric manager and all GPUs of its partition take part"


@_part
def virtual() -> str:
    return "it is shared out as virtual GPUs, or is one"


@_part
def not_in_time(seconds: str) -> str:
    return f"nvidia-smi did not end within {seconds} s"


@_part
def no_tool(error: str) -> str:
    return f"nvidia-smi cannot be run: {error}"


@_part
def still_wrong(seconds: str, cause: str) -> str:
    return f"{seconds} s after the reset: {cause}"


@_part
def not_back(seconds: str) -> str:
    return f"NVML has not read it within {seconds} s of the reset"


@_part
def errors_left(errors: object) -> str:
    return f"{plural(errors, 'uncorrected memory error')} after the reset"


@_part
def links_left(links: str) -> str:
    return f"NVLink {links} is down, and was up before the reset"


@_part
def slower(found: object, before: object) -> str:
    return f"its NVLinks run at {found} MB/s, at {before} before the reset"


@_part
def memory_differs(found: object, before: object) -> str:
    return f"{found} MiB of memory, {before} before the reset"


@_part
def narrower(found: object, before: object) -> str:
    return f"PCIe x{found}, x{before} before the reset"


@_part
def too_hot(degrees: object, limit: object) -> str:
    return f"{degrees} C after the reset, where it slows down at {limit}"


@_part
def action_left(action: object) -> str:
    return f"the driver still asks for a recovery action ({action})"


@_part
def layout_not_back(why: str) -> str:
    return f"its MIG instances were not made again: {why}"


@_part
def probe_failed(code: object, line: str) -> str:
    return f"remediation.verify ended with {code}: {line}"


@_part
def verifier_not_run(program: str, why: str) -> str:
    return f"remediation.verify.command: {program} could not be run: {why}"


@_waiting
def not_verified(gpu: str, why: str) -> str:
    return f"{gpu} was reset, and stays out until it can be verified: {why}"


@_part
def probe_late(seconds: str) -> str:
    return f"remediation.verify did not end within {seconds} s"
