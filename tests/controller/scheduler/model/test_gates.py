import pytest

from controller.scheduler.model.gates import DEFAULTS, FeatureGates, UnknownGateError


def test_an_override_changes_its_own_gate_alone() -> None:
    gates = FeatureGates({"PartialAdmission": False})
    assert {gate for gate in DEFAULTS if gates.on(gate) != DEFAULTS[gate]} == {"PartialAdmission"}


def test_a_gate_that_does_not_exist_is_named() -> None:
    with pytest.raises(UnknownGateError, match=r"featureGates\.PartialAdmision: no such gate"):
        FeatureGates({"PartialAdmision": True})
    with pytest.raises(UnknownGateError, match="Nonsense"):
        FeatureGates().on("Nonsense")
