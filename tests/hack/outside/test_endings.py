"""Endings: all who are left fit, so that whoever is not started was forgotten."""

import random
from collections import Counter

from hack.outside import setting
from hack.outside.acts import GPU, Act
from hack.outside.endings import ending

JOBS = [("alpha", f"job-{number}") for number in range(9)]


def ended(seed: int) -> tuple[setting.Setting, list[Act]]:
    rng = random.Random(seed)
    drawn = setting.drawn(rng)
    return drawn, list(ending(rng, drawn, JOBS, 10.0))


def test_every_queue_is_open_at_the_end() -> None:
    for seed in range(20):
        drawn, acts = ended(seed)
        opened = {
            each.name for each in acts if each.kind == "ClusterQueue" and each.body["spec"]["stopPolicy"] == "None"
        }
        assert opened == {each.name for each in drawn.queues}


def test_a_tight_ending_leaves_jobs_that_need_exactly_the_only_flavor_of_their_queue() -> None:
    kinds: Counter[bool] = Counter()
    for seed in range(40):
        _, acts = ended(seed)
        full = {each.name: each for each in acts if each.verb == "create"}
        kinds[bool(full)] += 1
        deleted = [(each.namespace, each.name) for each in acts if each.verb == "delete"]
        assert len(deleted) == (9 if full else 6)
        for act in acts if full else ():
            if act.kind == "ClusterQueue":
                amounts = gpu_quotas(act)
                assert amounts == [str(full[f"full-{act.name}"].body["spec"]["parallelism"])]
    assert min(kinds[True], kinds[False]) >= 5


def gpu_quotas(act: Act) -> list[str]:
    rows = [
        row
        for group in act.body["spec"]["resourceGroups"]
        for flavor in group["flavors"]
        for row in flavor["resources"]
    ]
    return [row["nominalQuota"] for row in rows if row["name"] == GPU]
