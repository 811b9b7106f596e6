"""Reads files for a plan: manifests, Helm values, configuration files, lists of metrics."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from cli.manifests import WrongInputError, files_of, in_order, note, text_of, warn
from cli.migrate.chartvalues import given as given_in
from cli.migrate.inputs import MOST_VALUES, Inputs, Text, is_fields, size_of, sort_in
from cli.migrate.kueue import gates_of
from cli.migrate.nvidia import placed
from cli.printing.output import one_line
from cli.words import given
from cli.words import migrating as say
from controller.cluster.config.load import parse
from controller.insight.simulation.documents import Document, InputError, judged_values, read, unknown
from yamlfile import ConfigError

_CSV: Final = ".csv"
_CONFIGURATION: Final = "config.kueue.x-k8s.io/v1beta2"


def read_inputs(manifests: Iterable[Path]) -> Inputs:
    """All that the files hold. Unknown fields, likely mistakes and objects that are not read are told on standard
    error.

    Raises WrongInputError with a line for each problem.
    """
    inputs, errors = Inputs(), list[str]()
    for path in manifests:
        try:
            for file in files_of(path):
                errors += _read(file, inputs, may_be_empty=file != path)
        except InputError as wrong:
            errors += wrong.lines
    errors += [
        f"{each.place()}: found {_keys(each.data)}, expected {say.ANY_INPUT}. Correct it" for each in inputs.unreadable
    ]
    if errors:
        raise WrongInputError("\n".join(in_order(errors)))
    judge_kueue(inputs)
    note(map(_passed_over, inputs.others))
    return inputs


def _keys(data: Mapping[str, Any]) -> str:
    names = ", ".join(sorted(map(str, data))[:4])
    return f"keys {names}" if names else "no keys"


def _passed_over(document: Document) -> str:
    """The note on an object that no part of a plan is made from: of a program it is the image that is not known."""
    if document.version == "apps/v1" and document.kind in ("DaemonSet", "Deployment"):
        containers = given_in(document.data, "spec.template.spec.containers")
        images = [str(each.get("image")) for each in containers or () if isinstance(each, dict)]
        name = one_line(str(document.data["metadata"].get("name")))
        return say.unknown_program(document.place(), document.kind, name, one_line(", ".join(images) or "none"))
    return say.not_read(document.place(), document.version, document.kind)


def judge_kueue(found: Inputs) -> None:
    """What the controller's own reader says of Kueue's configuration, and of feature gates."""
    for one in found.kueue_files:
        inert: list[tuple[str, str]] = []
        try:
            inert += [(each.key, each.why) for each in parse(one.text, "-").without_effect]
        except ConfigError as wrong:
            found.kueue_wrong.append(f"{placed(str(wrong), one)}. Correct it")
        found.kueue_inert.append(inert)
    for name, is_on in gates_of(found).items():
        body = {"apiVersion": _CONFIGURATION, "kind": "Configuration", "featureGates": {name: is_on}}
        try:
            inert_gates = parse(json.dumps(body), "-").without_effect
        except ConfigError:
            found.inert_gates[name] = say.NO_GATE
        else:
            if inert_gates:
                found.inert_gates[name] = inert_gates[0].why


def _read(file: Path, found: Inputs, *, may_be_empty: bool) -> list[str]:
    """Reads one file; the lines of its problems."""
    name = str(file) if str(file) != "-" else "standard input"
    text = text_of(file)
    if file.suffix == _CSV or is_fields(text):
        found.field_files.append(Text(name, file.name, text))
        return []
    reading = read(text, name, is_bare=True)
    errors = list(reading.errors)
    warn(reading.warnings)
    if not reading.documents and not errors and not may_be_empty:
        errors.append(given.nothing_in_it(name))
    for document in reading.documents:
        if size_of(document.data) > MOST_VALUES:
            errors.append(f"{document.place()}: found more than {MOST_VALUES:,} values, expected a smaller document")
            continue
        if "metadata" in document.data and "kind" in document.data:
            note(f"{line}; passed over" for line in unknown(document))
            wrong, odd = judged_values(document)
            errors += wrong
            warn(odd)
        sort_in(document, found, text if len(reading.documents) == 1 else "")
    return errors
