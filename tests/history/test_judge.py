"""When a wrong counts, what a recorder did not see, and that the judge is nobody's."""

import ast
import tokenize
from pathlib import Path

import history
from tests.support.history.told import Told, cluster_queue, job, local_queue, pod, workload

ROOM = Path(history.__file__).parent


def started() -> Told:
    told = Told()
    told.put(cluster_queue(), local_queue())
    told.later(1)
    told.put(job("j"), workload(job("j")), pod("p", job("j")))
    return told


def test_a_finding_names_since_when_and_is_told_once() -> None:
    told = started()
    for _ in range(5):
        told.later(3)
        told.put(pod("p", job("j")))
    (found,) = told.found()
    assert (found.t, found.rule, found.objects) == (1.0, "ran-without-admission", ("Pod team/p", "Workload team/job-j"))


def test_a_wrong_that_ends_in_time_is_none_and_a_second_one_begins_anew() -> None:
    told = started()
    for _ in range(3):
        told.later(3)
        told.drop(pod("p", job("j")))
        told.put(pod("p", job("j")))
    assert told.found() == []


def test_two_wrongs_of_the_same_objects_are_one_and_both_end() -> None:
    told, cut = started(), [{"uuid": name, "profile": "3g.40gb"} for name in ("MIG-1", "MIG-2")]
    told.drop(pod("p", job("j")), workload(job("j")))
    told.line("kubelet", node="n1", call="NodePrepareResources", claim="team/c", devices=["MIG-1", "MIG-2"])
    told.hardware("n1", {"uuid": "GPU-1", "mig": cut})
    told.hardware("n1", {"uuid": "GPU-1"})
    told.later(3)
    told.line("kubelet", node="n1", call="NodeUnprepareResources", claim="team/c")
    told.later(30)
    told.line("recorder", type="END")
    assert told.found() == []


def test_time_in_which_the_recorder_is_blind_does_not_count() -> None:
    told = started()
    told.later(1)
    told.line("recorder", type="BLIND", what="pods")
    told.later(600)
    told.line("recorder", type="SIGHT", what="pods")
    told.later(3)
    told.put(cluster_queue())
    assert told.found() == []
    told.later(2)
    told.put(cluster_queue())
    assert len(told.found()) == 1
    assert "600 s in which a watch was cut" in told.verdict().unseen


def test_what_is_not_in_the_record_is_said() -> None:
    told = started()
    told.line("recorder", type="UNSEEN", what="jobsets: may not be read")
    verdict = told.verdict()
    assert verdict.facts == 6
    assert verdict.unseen == (
        "hardware: GPUs, MIG instances and shares that exist are not in the record",
        "jobsets: may not be read",
        "kubelets: which pod has which device is not in the record",
    )
    told.hardware("n1", {"uuid": "GPU-1"})
    told.pods("n1")
    assert told.verdict().unseen == ("jobsets: may not be read",)


def test_the_room_is_small_enough_to_be_read() -> None:
    """Lines of code: without comments, docstrings and blanks."""
    assert 500 < sum(map(_lines_of_code, ROOM.glob("*.py"))) <= 1520


def _lines_of_code(module: Path) -> int:
    tree, code = ast.parse(module.read_text()), set[int]()
    texts = [each for each in ast.walk(tree) if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)]
    said = {line for each in texts for line in range(each.lineno, (each.end_lineno or each.lineno) + 1)}
    with tokenize.open(module) as source:
        for token in tokenize.generate_tokens(source.readline):
            if token.string.strip() and token.type != tokenize.COMMENT:
                code.update(range(token.start[0], token.end[0] + 1))
    return len(code - said)
