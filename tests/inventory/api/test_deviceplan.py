"""What is written on a pod is read as it was planned; what nobody wrote so harms nobody."""

from hypothesis import given
from hypothesis import strategies as st

from inventory.api.deviceplan import devices, written

names = st.sampled_from(["GPU-1", "GPU-2", "MIG-3", "GPU-1::4"])


@given(st.lists(st.tuples(names, st.integers(1, 100)), max_size=8))
def test_a_device_plan_that_is_written_is_read_again(runs: list[tuple[str, int]]) -> None:
    plan = tuple(name for name, count in runs for _ in range(count))
    assert devices(written(plan)) == plan
    assert devices(",".join(plan)) == plan


def test_percents_of_a_gpu_are_few_words() -> None:
    assert written(["GPU-1"] * 60 + ["GPU-2"]) == "GPU-1*60,GPU-2"
    assert devices(" GPU-1*2 , GPU-2,") == ("GPU-1", "GPU-1", "GPU-2")


def test_no_annotation_makes_a_reader_hold_more_than_any_pod_is_given() -> None:
    assert devices("GPU-1*99999") == ("GPU-1",)
    assert devices("GPU-1*6400,GPU-2") == ()
    assert devices(",".join(["a*6000"] * 50)) == ()
    assert devices("a," * 40_000) == ()
    assert devices("a*x,b*-1,c*²") == ("a", "b", "c")


@given(st.text(alphabet="a*,1 9:", max_size=60))
def test_whatever_it_says_it_is_read(text: str) -> None:
    assert len(devices(text)) <= 6400
