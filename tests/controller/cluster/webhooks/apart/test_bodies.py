"""What is held of strangers' bodies: never more than there is room for, and room for all once others are gone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.cluster.webhooks.apart.bodies import Bodies, BodiesFullError, Body, BodyTooLargeError

ONE, MANY, HELD = 40, 300, 400

Step = tuple[str, int, int]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("open"), st.integers(-1, 350), st.sampled_from([ONE, MANY])),
        st.tuples(st.just("take"), st.integers(0, 20), st.integers(0, 120)),
        st.tuples(st.just("close"), st.integers(0, 20), st.just(0)),
    ),
    max_size=60,
)


@given(steps=STEPS)
def test_never_more_is_held_than_there_is_room_for_and_one_large_body_at_a_time(steps: list[Step]) -> None:
    bodies, held = Bodies(HELD, ONE), list[Body]()
    for what, which, amount in steps:
        try:
            if what == "open":
                held.append(bodies.open(None if which < 0 else which, amount))
            elif held and what == "take":
                held[which % len(held)].take(amount)
            elif held:
                held[which % len(held)].close()
        except (BodyTooLargeError, BodiesFullError):
            if what == "take":
                held.pop(which % len(held)).close()
        bodies.validate()
        assert bodies.held_bytes <= HELD
    for body in held:
        body.close()
        body.close()
    assert bodies.held_bytes == 0
    bodies.open(MANY, MANY).take(MANY)


def test_what_was_announced_and_has_not_come_takes_no_room() -> None:
    bodies = Bodies(HELD, ONE)
    slow = [bodies.open(ONE, ONE) for _ in range(1000)]
    fast = [bodies.open(ONE, ONE) for _ in range(HELD // 2 // ONE)]
    for body in fast:
        body.take(ONE)
    with pytest.raises(BodiesFullError):
        slow[0].take(1)
    fast[0].close()
    slow[0].take(1)


def test_a_body_over_its_paths_size_is_refused_before_it_comes_and_while_it_does() -> None:
    bodies = Bodies(HELD, ONE)
    with pytest.raises(BodyTooLargeError):
        bodies.open(ONE + 1, ONE)
    body = bodies.open(None, ONE)
    with pytest.raises(BodyTooLargeError):
        body.take(ONE + 1)


def test_a_second_large_body_has_no_room_whatever_it_announced() -> None:
    bodies = Bodies(HELD, ONE)
    first = bodies.open(ONE + 1, MANY)
    for announced in (ONE + 1, None):
        with pytest.raises(BodiesFullError):
            bodies.open(announced, MANY)
    grows = bodies.open(1, MANY)
    with pytest.raises(BodiesFullError):
        grows.take(ONE + 1)
    first.close()
    bodies.open(ONE + 1, MANY)
