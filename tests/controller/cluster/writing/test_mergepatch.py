"""A patch is the smallest that makes one status the other, and is tied to the version it was made from."""

from hypothesis import given
from hypothesis import strategies as st

from controller.cluster.writing.mergepatch import diff, status_patch
from controller.jobs.framework.raw import merged
from controller.objects.meta import ObjectMeta
from controller.objects.workload import Workload
from controller.scheduler.decisions import status
from controller.scheduler.decisions.evictionstatus import evicted

leaves = st.one_of(st.integers(), st.text(max_size=3), st.lists(st.integers(), max_size=2), st.booleans())
trees = st.dictionaries(
    st.sampled_from("abcd"), st.recursive(leaves, lambda inner: st.dictionaries(st.sampled_from("xyz"), inner))
)


@given(trees, trees)
def test_a_patch_turns_one_into_the_other(before: dict[str, object], after: dict[str, object]) -> None:
    assert _bare(merged(before, diff(before, after))) == _bare(after)


@given(trees)
def test_equal_objects_need_no_patch(tree: dict[str, object]) -> None:
    assert diff(tree, tree) == {}


def _bare(tree: object) -> object:
    """A map that lost its last key stays as an empty one, which means the same."""
    if isinstance(tree, dict):
        return {key: bare for key, item in tree.items() if (bare := _bare(item)) != {}}
    return tree


def test_a_status_patch_names_version_and_object() -> None:
    before = Workload(metadata=ObjectMeta(name="a", namespace="ns", uid="u", resource_version="7"))
    patch = status_patch(before, status.finished(before, "Succeeded", "", 0.0))
    assert patch["metadata"] == {"uid": "u", "resourceVersion": "7"}
    assert set(patch["status"]) == {"conditions"}
    assert status_patch(before, before) == {}


def test_what_the_schema_requires_is_written_though_it_is_empty() -> None:
    before = Workload(metadata=ObjectMeta(name="a", namespace="ns", uid="u", resource_version="7"))
    patch = status_patch(before, evicted(before, "Preempted", "", now_s=0.0))
    assert patch["status"]["conditions"][0]["message"] == ""
    assert patch["status"]["schedulingStats"]["evictions"][0]["underlyingCause"] == ""
