"""A bill of materials as CycloneDX 1.5 JSON. The same locks give the same bytes: it holds no time."""

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

from hack.supply.locks import Package, Use, needs, validate

SPEC_VERSION: Final = "1.5"
_NAMESPACE: Final = uuid.uuid5(uuid.NAMESPACE_URL, "https://tessera.dev/sbom")


def bill(name: str, version: str, packages: Sequence[Package], licences: Mapping[str, str]) -> dict[str, Any]:
    """The document for the project ``name``, whose licence and whose packages' ``licences`` has as SPDX expressions."""
    validate(packages)
    root = {"type": "application", "bom-ref": name, "name": name, "version": version, **_licence(licences[name])}
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "version": 1,
        "metadata": {"lifecycles": [{"phase": "pre-build"}], "component": root},
        "components": [_component(each, licences[each.name]) for each in packages],
        "dependencies": _dependencies(name, packages),
    }
    content = json.dumps(document, sort_keys=True)
    return {"serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, content)}", **document}


def _component(package: Package, licence: str) -> dict[str, Any]:
    return {
        "type": "library",
        "bom-ref": package.purl,
        "name": package.name,
        "version": package.version,
        "scope": package.use.value,
        "hashes": [{"alg": "SHA-256", "content": each} for each in package.sha256],
        **_licence(licence),
        "purl": package.purl,
    }


def _licence(expression: str) -> dict[str, Any]:
    if " " in expression:
        return {"licenses": [{"expression": expression}]}
    return {"licenses": [{"license": {"id": expression}}]}


def _dependencies(name: str, packages: Sequence[Package]) -> list[dict[str, Any]]:
    """The project depends on what it has in its image; its tools are components alone."""
    by_name = {each.name: each for each in packages}
    refs = {**{each.name: each.purl for each in packages}, name: name}
    dependencies = []
    for of, needed in needs(packages).items():
        kept = [each for each in needed if of != name or by_name[each].use is Use.IMAGE]
        dependencies.append({"ref": refs[of], "dependsOn": [refs[each] for each in kept]})
    return dependencies
