"""Packages as the locks have them: names, exact versions, hashes, and what needs them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

_PACKAGE: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==(\S+)")
_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})\b")
_VIA: Final = re.compile(r"#\s+(?:via\s+)?([A-Za-z0-9][A-Za-z0-9._-]*)(?:\s+\(pyproject\.toml\))?$")
_SEPARATORS: Final = re.compile(r"[-_.]+")


class Use(StrEnum):
    """Scopes of CycloneDX: ``required`` is in the image, ``excluded`` is for building and testing alone."""

    IMAGE = "required"
    DEVELOPMENT = "excluded"


@dataclass(frozen=True, slots=True)
class Package:
    """One package of a registry. ``sha256`` are of all its files: a wheel for each platform, and the source."""

    name: str
    version: str
    sha256: tuple[str, ...]
    needed_by: tuple[str, ...]
    use: Use
    registry: str = "pypi"

    @property
    def purl(self) -> str:
        return f"pkg:{self.registry}/{self.name}@{self.version}"


def normal(name: str) -> str:
    """A package's name as PEP 503 compares names."""
    return _SEPARATORS.sub("-", name).lower()


def parse(text: str, use: Use) -> list[Package]:
    """Packages of a lock of pip-compile, in its order. ValueError names the line that is none of its kinds."""
    locked: list[Package] = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.strip().removesuffix("\\").strip()
        if head := _PACKAGE.fullmatch(words):
            locked.append(Package(normal(head[1]), head[2], (), (), use))
        elif not words or (words.startswith("#") and (not locked or words == "# via" or _no_package(words))):
            continue
        elif locked and (digest := _HASH.fullmatch(words)):
            locked[-1] = replace(locked[-1], sha256=(*locked[-1].sha256, digest[1]))
        elif locked and (via := _VIA.fullmatch(words)):
            locked[-1] = replace(locked[-1], needed_by=(*locked[-1].needed_by, normal(via[1])))
        else:
            raise ValueError(
                f"line {number}: found {line!r}, expected a package with ==, a hash of sha256 or a comment"
            )
    return locked


def merge(image: Sequence[Package], development: Sequence[Package]) -> list[Package]:
    """Each package once, by name; what the image holds keeps that use.

    ValueError if both locks hold a package in different versions: then no run of the tests would be one of the image's.
    """
    known: dict[str, Package] = {each.name: each for each in image}
    for each in development:
        first = known.setdefault(each.name, each)
        if (first.version, set(first.sha256)) != (each.version, set(each.sha256)):
            raise ValueError(f"{each.name}: found {first.version} in the image's lock and {each.version} in the other")
    return [known[name] for name in sorted(known)]


def validate(packages: Sequence[Package]) -> None:
    """Names are there once, each with a hash, and what needs a package is there too. ValueError otherwise."""
    names = [each.name for each in packages]
    if len(set(names)) != len(names):
        raise ValueError(f"packages: found a name twice in {names}")
    for package in packages:
        if not package.sha256:
            raise ValueError(f"{package.name}: found no hash, expected one of sha256 at least")
        if unknown := set(package.needed_by) - {*names, "tessera"}:
            raise ValueError(f"{package.name}: needed by {sorted(unknown)}, which is not locked")


def needs(packages: Sequence[Package]) -> Mapping[str, list[str]]:
    """By name, with ``tessera`` for the project itself: the names that it needs directly, sorted."""
    by_name: dict[str, list[str]] = {"tessera": [], **{each.name: [] for each in packages}}
    for each in packages:
        for by in each.needed_by:
            by_name[by].append(each.name)
    return {name: sorted(set(of)) for name, of in by_name.items()}


def _no_package(comment: str) -> bool:
    """A comment that names the other lock, or pip-compile's remark on packages that it counts as unsafe."""
    return comment.startswith(("# The following packages", "#   -c ", "# via -c "))
