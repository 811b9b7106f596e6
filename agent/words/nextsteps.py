"""The next step of a GPU's repair in a few words, for ``tessera node health``, GpuNodes and the page."""

_NEXT = {
    "Draining": "it is reset once nobody has it",
    "Resetting": "it is verified after the reset",
    "Verifying": "probation, if all is as before its fault",
    "Probation": "back in service after its probation",
    "RebootWanted": "drain the node and reboot it",
    "Retired": "have the board looked at; tessera node return gives it back",
}


_ASKED = {
    "drain": "the controller lets the pods leave that hold it, then it is reset",
    "reset": "it is reset once the controller lets it",
    "reboot": "the controller is asked for a reboot; or drain the node and reboot it",
}


def next_step(state: str, asks: str = "") -> str:
    """What comes after this state of a repair, or what a person has to do; ``asks`` is what the agent asks for."""
    return _ASKED[asks] if asks else _NEXT[state]
