"""What simulated GPUs measure: with a job they are warm, without one they rest, and a silent one tells nothing."""

import msgspec

from cli.playground.figures import measured
from cli.playground.world import packaged
from simulator.boards.loads import Load
from simulator.fleet.fleet import NodeSpec
from simulator.fleet.fleetfile import load_fleet


def node() -> NodeSpec:
    return load_fleet(packaged()[0]).nodes[0]


def test_held_gpus_work_and_are_warm_and_others_rest() -> None:
    spec = node()
    busy, free = (gpu.uuid for gpu in spec.gpus[:2])
    for t_s in range(0, 1200, 50):
        found = measured(spec, {busy}, set(), float(t_s))
        assert found.keys() == {gpu.uuid for gpu in spec.gpus}
        works, rests = found[busy], found[free]
        assert 0.6 <= (works.busy or 0.0) <= 1.0
        assert rests.busy == 0.0
        assert (works.temperature_c or 0) >= (rests.temperature_c or 0) + 15
        assert (works.used_mib or 0.0) > (rests.used_mib or 0.0) == 0.0


def test_gpus_with_one_job_are_not_all_alike() -> None:
    spec = node()
    assert len({each.busy for each in measured(spec, {gpu.uuid for gpu in spec.gpus}, set(), 0.0).values()}) > 1


def test_a_gpu_that_does_not_answer_measures_nothing() -> None:
    spec = node()
    lost = spec.gpus[3].uuid
    assert lost not in measured(spec, {lost}, {lost}, 0.0)


def test_what_the_fleet_file_says_of_a_gpu_counts() -> None:
    load = Load(gpu=0, sm_util=((0.0, 0.25),), temperature_c=((0.0, 70.0),))
    spec = msgspec.structs.replace(node(), loads=(load,))
    own = spec.gpus[0].uuid
    found = measured(spec, {own}, set(), 0.0)[own]
    assert (found.busy, found.temperature_c) == (0.25, 70)
