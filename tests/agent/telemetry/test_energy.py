from hypothesis import given
from hypothesis import strategies as st

from agent.telemetry.energy import EnergyLedger

Watts = dict[str, float]
passes = st.lists(
    st.tuples(
        st.floats(0, 1e6),
        st.dictionaries(st.sampled_from(["a", "b", "c"]), st.floats(0, 300)),
        st.floats(0, 300),
        st.booleans(),
    ),
    max_size=12,
)


@given(passes)
def test_no_energy_is_lost_or_invented(steps: list[tuple[float, Watts, float, bool]]) -> None:
    ledger: EnergyLedger[str, str] = EnergyLedger()
    counter = gained = 0.0
    ledger.add("gpu", counter, {}, 0)
    for more, watts, rest, reset in steps:
        counter = more if reset and more < counter else counter + more
        gained += more
        ledger.add("gpu", counter, watts, sum(watts.values()) + rest)
        ledger.validate()
        account = ledger.account("gpu")
        assert account is not None
        assert account.users_mj.keys() == watts.keys(), "an account of somebody who is not there"
    account = ledger.account("gpu")
    assert account is not None
    assert abs(account.gained_mj - gained) <= 1e-6 * max(1.0, gained)


def test_energy_goes_as_the_power_did() -> None:
    ledger: EnergyLedger[str, str] = EnergyLedger()
    ledger.add("gpu", 1000.0, {"a": 100.0}, 400.0)
    ledger.add("gpu", 5000.0, {"a": 100.0, "b": 200.0}, 400.0)
    account = ledger.account("gpu")
    assert account is not None
    assert account.users_mj == {"a": 1000.0, "b": 2000.0}
    assert account.unattributed_mj == 1000.0


def test_a_gpu_that_is_gone_has_no_account() -> None:
    ledger: EnergyLedger[str, str] = EnergyLedger()
    ledger.add("gpu", 0.0, {"a": 1.0}, 1.0)
    ledger.keep(set())
    assert ledger.account("gpu") is None
