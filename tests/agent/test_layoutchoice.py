"""A GpuLayout's settings of repairs are laid over the agent's own, where the agent has the rights for them."""

from agent.cluster.gpulayouts import Chosen
from agent.config.settings import Settings
from agent.health.remediation import RebootMode, Remediation, ResetMode
from agent.layoutchoice import LayoutChoice
from inventory.devices import NodeName
from inventory.layout.entries import GpuLayoutSpec

OWN = Remediation(reset=ResetMode.WHEN_FREE, attempts=5, verify_command=("/opt/check", "--quick"))
SETTINGS = Settings(node_name=NodeName("node-1"), remediation=OWN)


def choice(over: dict[str, str | int | float], *, may_reset: bool = True) -> LayoutChoice:
    made = LayoutChoice(SETTINGS, None, may_reset=may_reset)
    assert made.heard(Chosen(GpuLayoutSpec((), "GpuLayout a", tuple(over.items()))))
    return made


def test_what_a_gpulayout_does_not_say_stays_as_it_is() -> None:
    settings, refused = choice({"reset": "drain", "reboot": "ask"}).remediated
    assert refused == ""
    assert settings.remediation == Remediation(
        reset=ResetMode.DRAIN, reboot=RebootMode.ASK, attempts=5, verify_command=("/opt/check", "--quick")
    )
    assert LayoutChoice(SETTINGS, None).remediated == (SETTINGS, "")


def test_without_the_rights_a_reset_is_refused_by_name_and_nothing_of_it_holds() -> None:
    settings, refused = choice({"reset": "drain", "attempts": 1}, may_reset=False).remediated
    assert settings == SETTINGS
    assert refused.startswith("GpuLayout a: remediation.reset: found drain, expected never")


def test_to_reset_nothing_takes_no_rights() -> None:
    settings, refused = choice({"reset": "never"}, may_reset=False).remediated
    assert (settings.remediation.reset, refused) == (ResetMode.NEVER, "")
