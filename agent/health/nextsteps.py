"""What comes after each state of a repair, in words. Pure.

RepairState, the agent's ask -> next_step(...) -> one line for a person
"""

from typing import Final

from agent.health.grants import AskFor
from agent.health.repairstate import RepairState
from agent.words import repairs as words

_NEXT: Final = {
    RepairState.DRAINING: words.next_reset(),
    RepairState.RESETTING: words.next_verified(),
    RepairState.VERIFYING: words.next_probation(),
    RepairState.PROBATION: words.next_service(),
    RepairState.REBOOT_WANTED: words.next_reboot(),
    RepairState.RETIRED: words.next_person(),
}
_ASKED: Final = {
    AskFor.DRAIN: words.next_drained(),
    AskFor.RESET: words.next_granted(),
    AskFor.REBOOT: words.next_planned(),
}


def next_step(state: RepairState, asks: str = "", *, held_back: bool = False) -> str:
    """What comes after this state of a repair, or what a person has to do.

    ``asks`` is what the agent asks the controller for, a value of ``AskFor``; empty for nothing. Raises ValueError for
    another. ``held_back``: the breaker of the node does not let it be reset yet.
    """
    if held_back and not asks:
        return words.next_let()
    return _ASKED[AskFor(asks)] if asks else _NEXT[state]
