"""Topology annotations of pod sets in CEL: the rules of ``jobs.framework.topologyrequest``.

A kind lists its pod sets in CEL: maps of ``name``, ``path`` (where the annotations stand), ``count``, ``annotations``
and, for the first two of the API server's own types, nothing else.
"""

from collections.abc import Mapping
from typing import Final

from controller.jobs.framework.podsets import UNCONSTRAINED
from controller.jobs.framework.topologyrequest import (
    GROUP_NAME,
    PREFERRED,
    REQUIRED,
    SLICE_CONSTRAINTS,
    SLICE_SIZE,
    SLICE_TOPOLOGY,
)
from controller.jobs.rules import cel

_MAX_SIZE: Final = 2**31 - 1
_COUNTS: Final = (("parallelism", 1), ("completions", _MAX_SIZE))
_GIVEN: Final = "p.annotations"


def pod_set(name: str, path: str, count: str, annotations: str) -> str:
    """One pod set, in CEL; all arguments are expressions. ``annotations`` is an optional."""
    found = {"name": name, "path": path, "count": count, "annotations": f"{annotations}.orValue({{}})"}
    return "{" + ", ".join(f"'{key}': dyn({value})" for key, value in found.items()) + "}"


def parallel_pods_in_cel(spec: str) -> str:
    """The number of pods that a batch Job with this specification, an optional, runs at a time, in CEL."""
    parallelism, completions = (f"{spec}.?{key}.orValue({default})" for key, default in _COUNTS)
    return f"({completions} < {parallelism} ? {completions} : {parallelism})"


def says() -> Mapping[str, str]:
    """Sentences by rule about all pod sets of a job, ``variables.podSets``: each is about the first that breaks the
    rule.

    They are the rules of ``topologyrequest.topology_refusals``.
    """
    return {**says_of_each(), "topologySizes": _of_first(_sizes()), "topologyMembers": _of_first(_members())}


def says_of_each() -> Mapping[str, str]:
    """Sentences as of ``says`` if neither sizes nor other pod sets are known: the rules of
    ``topologyrequest.refusals``.
    """
    return {
        "topologyLevels": _of_first(_levels()),
        "topologyLabels": _of_first(_labels()),
        "topologyFlag": _of_first(_flag()),
        "topologySlices": _of_first(_slices()),
        "topologyConstraints": _of_first(_constraints()),
        "topologyGroups": _of_first(_group()),
    }


def _of_first(sentence: str) -> str:
    found = cel.first(f"variables.podSets.map(p, {sentence})")
    return cel.when("!variables.gates.TopologyAwareScheduling", "''", found)


def elastic_says() -> Mapping[str, str]:
    """Sentences about elastic batch Jobs alone."""
    sentence = f": an elastic job may not ask for {REQUIRED} or {PREFERRED}: its pods come and go"
    found = [cel.when(_has(key), cel.text("p.path", cel.quoted(f".{key}{sentence}"))) for key in (REQUIRED, PREFERRED)]
    elastic = "variables.elastic && variables.gates.ElasticJobsViaWorkloadSlices"
    said = cel.first(f"variables.podSets.map(p, {cel.any_of(*found)})")
    return {"topologyElastic": cel.when(elastic, said)}


def _has(key: str) -> str:
    return cel.has_key(_GIVEN, key)


def _value(key: str) -> str:
    return cel.key(_GIVEN, key)


def _at(sentence: str, key: str = "") -> str:
    """A sentence that is always the same, about the pod set or one of its annotations."""
    return cel.text("p.path", cel.quoted(f"{f'[{key}]' if key else ''}: {sentence}"))


def _found(sentence: str, key: str) -> str:
    return cel.text("p.path", cel.quoted(f"[{key}]: {sentence}, found "), cel.shown(_value(key)))


def _levels() -> str:
    keys = f"[{', '.join(map(cel.quoted, (REQUIRED, PREFERRED, UNCONSTRAINED)))}].filter(k, k in {_GIVEN})"
    sentence = cel.text(
        "p.path",
        cel.quoted(f": at most one of {REQUIRED}, {PREFERRED}, {UNCONSTRAINED}, found "),
        f"{keys}.join(' and ')",
    )
    return cel.when(f"size({keys}) > 1", sentence)


def _labels() -> str:
    return cel.any_of(
        *(
            cel.when(
                f"{_has(key)} && !{cel.is_label_key(_value(key))}",
                _found("expected the node label of a topology level", key),
            )
            for key in (REQUIRED, PREFERRED, SLICE_TOPOLOGY)
        )
    )


def _flag() -> str:
    wrong = f"{_has(UNCONSTRAINED)} && !{cel.is_flag(_value(UNCONSTRAINED))}"
    return cel.when(wrong, _found("expected true or false", UNCONSTRAINED))


def _slices() -> str:
    level, size, listed = _has(SLICE_TOPOLOGY), _has(SLICE_SIZE), _has(SLICE_CONSTRAINTS)
    value = _value(SLICE_SIZE)
    low = cel.text(
        "p.path", cel.quoted(f"[{SLICE_SIZE}]: expected a size of at least 1, found "), f"string(int({value}))"
    )
    out = f"int({value}) < 1 || int({value}) > {_MAX_SIZE}"
    read = cel.when(f"!{cel.is_integer(value)}", _found("expected an integer", SLICE_SIZE), cel.when(out, low))
    alone = _at(f"{SLICE_SIZE} is set without {SLICE_TOPOLOGY}", SLICE_SIZE)
    without = _at(f"{SLICE_TOPOLOGY} is set without {SLICE_SIZE}", SLICE_SIZE)
    return cel.when(
        f"{level} && !{size}", without,
        cel.when(f"{size} && !{level} && !{listed}", alone, cel.when(size, read)),
    )  # fmt: skip


def _constraints() -> str:
    """The sentence about constraints. The list in the annotation is JSON, which CEL does not read: the controller
    checks its sizes.
    """
    off = cel.when(
        "!variables.gates.TASMultiLayerTopology",
        _at("the feature gate TASMultiLayerTopology is off", SLICE_CONSTRAINTS),
        cel.any_of(
            *(
                cel.when(_has(other), _at(f"it may not stand beside {other}", SLICE_CONSTRAINTS))
                for other in (SLICE_TOPOLOGY, SLICE_SIZE, GROUP_NAME)
            )
        ),
    )
    return cel.when(_has(SLICE_CONSTRAINTS), off)


def _group() -> str:
    value = _value(GROUP_NAME)
    sentence = cel.any_of(
        cel.when(f"{value}.matches('^[0-9]*$')", _found("expected a name that is no number", GROUP_NAME)),
        cel.when(
            f"!({_has(REQUIRED)}) && !({_has(PREFERRED)})",
            _at(f"a group needs {REQUIRED} or {PREFERRED}", GROUP_NAME),
        ),
        *(
            cel.when(_has(key), _at(f"a group may not ask for slices ({key})", GROUP_NAME))
            for key in (SLICE_TOPOLOGY, SLICE_SIZE)
        ),
    )
    return cel.when(_has(GROUP_NAME), sentence)


def _sizes() -> str:
    value = _value(SLICE_SIZE)
    sentence = cel.text(
        "p.path",
        cel.quoted(f"[{SLICE_SIZE}]: a slice of "),
        f"string(int({value}))",
        cel.quoted(" pods is larger than the pod set of "),
        "string(p.count)",
    )
    return cel.when(f"{_has(SLICE_SIZE)} && {cel.is_integer(value)}", cel.when(f"int({value}) > p.count", sentence))


def _members() -> str:
    """The sentence about the group of a pod set."""
    own = cel.quoted(GROUP_NAME)
    group = f"variables.podSets.filter(q, q.annotations[?{own}] == p.annotations[?{own}])"
    many = cel.text(
        "p.path",
        cel.quoted(f"[{GROUP_NAME}]: expected exactly two pod sets, found "),
        f"string(size({group}))",
        "' ('",
        f"{group}.map(q, q.name).join(', ')",
        "')'",
    )
    large = cel.text(
        "p.path",
        cel.quoted(f"[{GROUP_NAME}]: expected one of the two pod sets to have one pod, found "),
        f"{group}.map(q, string(q.count)).join(' and ')",
    )
    levels = [f"q.annotations[?{key}] == p.annotations[?{key}]" for key in map(cel.quoted, (REQUIRED, PREFERRED))]
    other = _at("both pod sets must ask for the same required or preferred topology")
    wrong = cel.when(
        f"size({group}) != 2", many,
        cel.when(
            f"!{group}.exists(q, q.count == 1)", large,
            cel.when(f"!{group}.all(q, {' && '.join(levels)})", other),
        ),
    )  # fmt: skip
    return cel.when(_has(GROUP_NAME), wrong)
