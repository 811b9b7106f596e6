"""``make sbom``: write ``build/sbom.json``, or say which licence is unknown and exit with 1."""

import json
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import msgspec

from hack.show import ROOT
from hack.supply import vendored
from hack.supply.bill import bill
from hack.supply.licences import Rules, Said, UnknownLicenceError, expression
from hack.supply.locks import Package, Use, merge, parse

PATH: Final = ROOT / "build" / "sbom.json"
RULES: Final = Path(__file__).parent / "licences.toml"
VENDORED: Final = {
    ROOT / "controller/people/page/vendor": Use.IMAGE,
    ROOT / "tests/support/page": Use.DEVELOPMENT,
    ROOT / "tests/support/supply": Use.DEVELOPMENT,
}
"""Folders whose JSON files each name a package that is kept in the repository."""


def packages() -> list[Package]:
    """Of both locks, by name. ValueError names the lock that is not one."""
    locks = {"run.txt": Use.IMAGE, "dev.txt": Use.DEVELOPMENT}
    return merge(*(parse((ROOT / "requirements" / name).read_text(), use) for name, use in locks.items()))


def kept() -> list[tuple[Package, str]]:
    """Packages of which the repository keeps files, with the words of their licences."""
    files = []
    for folder, use in VENDORED.items():
        for path in sorted(folder.glob("*.json")):
            one = vendored.read(path)
            files.append((one.as_package(use), one.licence))
    return files


def installed(package: Package) -> Said:
    """What the package says of its licence where it is installed. ValueError if it is not, or in another version."""
    try:
        about = metadata.metadata(package.name)
    except metadata.PackageNotFoundError:
        raise ValueError(f"{package.name}: found none installed, expected {package.version}: run make setup") from None
    if about["Version"] != package.version:
        raise ValueError(
            f"{package.name}: found {about['Version']} installed, expected {package.version}: run make setup"
        )
    expressions, licences = (about.get_all(key) or [None] for key in ("License-Expression", "License"))
    return Said(expressions[0], licences[0], about.get_all("Classifier") or ())


def rules() -> Rules:
    return msgspec.toml.decode(RULES.read_bytes(), type=Rules)


def document() -> dict[str, Any]:
    """The bill of this tree. UnknownLicenceError has a line for each licence that is unknown or not allowed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    locked, files, allowed = packages(), kept(), rules()
    stated = [(each, installed(each)) for each in locked] + [(each, Said(licence=words)) for each, words in files]
    licences, unknown = {project["name"]: project["license"]}, []
    for package, words in stated:
        try:
            licences[package.name] = expression(package.name, words, allowed)
        except UnknownLicenceError as error:
            unknown.append(str(error))
    if unknown:
        raise UnknownLicenceError("\n".join(unknown))
    return bill(project["name"], project["version"], [each for each, _ in stated], licences)


def main() -> int:
    try:
        made = document()
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    PATH.parent.mkdir(exist_ok=True)
    PATH.write_text(json.dumps(made, indent=1) + "\n")
    print(f"sbom: {len(made['components'])} packages in {PATH.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
