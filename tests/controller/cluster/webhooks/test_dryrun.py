"""The webhook for dry runs: it allows whatever it is asked about, and tells what it knows."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.cluster.webhooks.dryrun import allowed, read, warnings_of


def review(**request: Any) -> bytes:
    whole = {
        "uid": "u",
        "operation": "CREATE",
        "namespace": "team",
        "dryRun": True,
        "object": {"kind": "Job"},
        **request,
    }
    return msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": whole})


def test_the_creation_in_a_dry_run_is_asked_about_and_nothing_else() -> None:
    assert read(review()) == ("u", {"kind": "Job"}, "team")
    for other in ({"operation": "UPDATE"}, {"dryRun": False}, {"dryRun": None}, {"namespace": ""}):
        assert read(review(**other))[:2] == ("u", None), other


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"request": {}}', b"\xff", b'{"request": {"uid": "\xff"}}', b"[" * 100_000, review(uid=7)]
)
def test_a_body_that_is_no_review_has_nothing_to_be_told_of(body: bytes) -> None:
    assert read(body).created is None


@given(st.lists(st.text(max_size=400), max_size=8))
def test_whatever_is_told_the_object_is_allowed_and_warnings_are_short_lines(told: list[str]) -> None:
    response = msgspec.json.decode(allowed("u", told))["response"]
    assert (response["uid"], response["allowed"]) == ("u", True)
    found = response.get("warnings", [])
    assert len(found) == min(len(told), 4)
    assert all(len(warning) <= 240 and "\n" not in warning for warning in found)


def foretold(**more: Any) -> dict[str, Any]:
    return {"localQueue": "lq", "clusterQueue": "cq", "startsNow": False, "sentence": "S", "forecast": None, **more}


def test_warnings_say_whether_it_starts_else_why_not_when_and_what_would_let_it() -> None:
    assert warnings_of(foretold(startsNow=True)) == ["would start at once, in ClusterQueue cq"]
    assert warnings_of(foretold(clusterQueue=None)) == ["would wait in LocalQueue lq: S"]
    changes = [{"sentence": "With 2 of the 6 pods of main"}]
    forecast = {"starts": "in 12m to 1h40m", "ahead": 3, "changes": changes}
    assert warnings_of(foretold(forecast=forecast)) == [
        "would wait in ClusterQueue cq: S",
        "likely start: in 12m to 1h40m, behind 3 others",
        "would start now: with 2 of the 6 pods of main",
    ]
    never = {"starts": "never, unless it asks for less", "never": "unless it asks for less", "ahead": 3, "changes": []}
    assert warnings_of(foretold(forecast=never))[1] == "likely start: never, unless it asks for less"
