"""Values that their kind, their chart or their program does not allow, as lines; fields that do not exist, as notes."""

from collections.abc import Iterable, Iterator
from typing import Final

from cli.migrate import nvidia
from cli.migrate.chartvalues import CLAIMS, DEVICE_PLUGIN, EXPORTER, KAI, KUEUE, VOLCANO, Rows, given, wrong_values
from cli.migrate.foreign import part as foreign
from cli.migrate.inputs import Inputs
from cli.migrate.operator import policy_of_chart
from cli.migrate.shapes import (
    CLUSTER_SPEC,
    CLUSTER_STATUS,
    ENV,
    SPEC,
    STATUS,
    TEXT,
    TEXTS,
    Misfit,
    Shape,
    items,
    misfits,
    obj,
)
from cli.migrate.steps import NAMESPACE, RELEASE
from cli.printing.output import one_line
from cli.words import migrating as say
from controller.insight.simulation.documents import Document
from controller.insight.simulation.problems import field
from controller.jobs.framework.names import is_object_name

_CONTAINERS: Final = ("spec", "template", "spec", "containers")
_CONTAINER: Final = items(obj(args=TEXTS, command=TEXTS, env=ENV, image=TEXT, name=TEXT))
"""The fields of a container that are read; it may have others."""
_CHARTS: Final[dict[str, Rows]] = {
    "device-plugin": DEVICE_PLUGIN,
    "dcgm-exporter": EXPORTER,
    "dra-driver": CLAIMS,
    "kueue": KUEUE,
    "kai-scheduler": KAI,
    "volcano": VOLCANO,
}


def wrong(inputs: Inputs) -> Iterator[str]:
    """A line for every value that is not allowed."""
    for document, shapes in _shaped(inputs):
        yield from _misnamed(document)
        for key, shape in shapes:
            yield from _told(document, misfits(document.data.get(key), shape, (key,)))
    for each in inputs.chart("gpu-operator"):
        yield from _told(each, misfits(policy_of_chart(each).data["spec"], SPEC))
    for values in inputs.values:
        yield from _told(values.document, wrong_values(values.document.data, _CHARTS.get(values.chart, {})))
    for each in (*inputs.workloads, *inputs.kueue, *inputs.volcano, *inputs.kai, *inputs.claims):
        yield from _misnamed(each)
    for workload in inputs.workloads:
        containers = given(workload.data, "spec.template.spec.containers")
        if not containers:
            yield say.found_expected(workload.place(_CONTAINERS), field(_CONTAINERS), "nothing", "a list of containers")
        yield from _told(workload, misfits(containers, _CONTAINER, _CONTAINERS))
    for one in (*inputs.plugin_files, *inputs.parted_files, *inputs.field_files):
        if not all(map(is_object_name, one.owner)):
            owner = one_line("/".join(one.owner))
            yield say.found_expected(one.place(1), "metadata.name", owner, "the name of an object")
    for each in inputs.release:
        yield from _other_release(each)
    yield from nvidia.wrong_files(inputs)
    yield from inputs.kueue_wrong
    yield from foreign.wrong_files(inputs)


def _other_release(document: Document) -> Iterator[str]:
    """A line where Tessera is installed, and not as the release that the steps are for."""
    metadata = document.data["metadata"]
    notes = metadata.get("annotations")
    notes = notes if isinstance(notes, dict) else {}
    release, space = (notes.get(f"meta.helm.sh/release-{key}") for key in ("name", "namespace"))
    if (release, space) != (RELEASE, NAMESPACE):
        found = f"release {release} in {space}" if release else "manifests without a Helm release"
        what = one_line(f"{document.kind} {metadata.get('name')}")
        yield say.other_release(document.place(), what, one_line(found), f"release {RELEASE} in {NAMESPACE}")


def _told(document: Document, found: Iterable[Misfit]) -> Iterator[str]:
    for one in found:
        if one.expected:
            yield say.found_expected(document.place(one.path), field(one.path), one.found, one.expected)


def strangers(inputs: Inputs) -> Iterator[str]:
    """A line for every field that does not exist."""
    for document, shapes in _shaped(inputs):
        for key, shape in shapes:
            for one in misfits(document.data.get(key), shape, (key,)):
                if not one.expected:
                    yield say.unknown_field(document.place(one.path), field(one.path), document.kind)
    for values in inputs.values:
        for one in wrong_values(values.document.data, _CHARTS.get(values.chart, {})):
            if not one.expected and values.chart in _CHARTS:
                yield say.unknown_value(values.document.place(one.path), field(one.path), values.chart)


def _shaped(inputs: Inputs) -> Iterator[tuple[Document, tuple[tuple[str, Shape], ...]]]:
    for each in inputs.policies:
        yield each, (("spec", SPEC), ("status", STATUS))
    for each in inputs.gpu_clusters:
        yield each, (("spec", CLUSTER_SPEC), ("status", CLUSTER_STATUS))


def _misnamed(document: Document) -> Iterator[str]:
    metadata = document.data["metadata"]
    for key in ("name", "namespace"):
        name = metadata.get(key)
        if not (isinstance(name, str) and is_object_name(name)) and (key == "name" or name is not None):
            path = ("metadata", key)
            yield say.found_expected(document.place(path), field(path), one_line(str(name)), "the name of an object")
