"""A request's status says its state, and the next leader reads the same state from it."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from controller.insight.bargaining.kept import read_request, state_of, status_of
from controller.insight.bargaining.life import Offer, State
from controller.objects.capacityrequests import STATES, CapacityRequestStatus
from controller.objects.decode import decode

TIMES = st.integers(0, 2**32).map(float)
MAYBE = st.none() | TIMES
OFFERS = st.builds(
    Offer,
    id=st.from_regex(r"offer-[1-9]", fullmatch=True),
    units=st.integers(1, 9),
    from_s=TIMES,
    until_s=MAYBE,
    flavor=st.sampled_from(["", "a100"]),
    stands_until_s=TIMES,
    held=st.booleans(),
    now=st.booleans(),
    elsewhere=st.booleans(),
    why=st.sampled_from(["", "2 free"]),
)
KEPT = st.builds(
    State,
    state=st.sampled_from(STATES),
    units=st.integers(0, 9),
    from_s=MAYBE,
    until_s=MAYBE,
    flavor=st.sampled_from(["", "a100"]),
    offers=st.lists(OFFERS, max_size=4).map(tuple),
    accepted=st.sampled_from(["", "offer-1"]),
    message=st.sampled_from(["", "Granted"]),
    used=st.integers(0, 9),
    used_s=MAYBE,
    holds_until_s=MAYBE,
)


@given(KEPT)
def test_a_state_is_read_from_its_status_as_it_was_written(state: State) -> None:
    stored = {key: value for key, value in status_of(state, "holder").items() if value is not None}
    read = decode(stored, CapacityRequestStatus)
    assert state_of(read) == state
    assert read.workload == "holder"


def test_times_below_a_second_are_kept_and_whole_ones_have_no_fraction() -> None:
    body = status_of(State(state="Granted", from_s=0.25, until_s=60.0), "")
    assert (body["from"], body["until"]) == ("1970-01-01T00:00:00.250000Z", "1970-01-01T00:01:00Z")


def test_a_template_is_kept_whole_and_a_unit_becomes_a_pod() -> None:
    template = {"spec": {"containers": [{"name": "m", "image": "i", "args": ["x"]}], "nodeSelector": {"a": "b"}}}
    spec = {"queueName": "q", "template": template}
    kept = read_request(msgspec.json.encode({"metadata": {"name": "r"}, "spec": spec}))
    assert kept.template == template
    assert kept.elsewhere == {"spec": {"containers": template["spec"]["containers"]}}
    unit = read_request(msgspec.json.encode({"metadata": {"name": "r"}, "spec": {"queueName": "q", "unit": {"g": 2}}}))
    (container,) = unit.template["spec"]["containers"]
    assert container["resources"] == {"requests": {"g": "2"}, "limits": {"g": "2"}}
    assert unit.elsewhere == unit.template
