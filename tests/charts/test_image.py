"""The image, as far as it can be judged without building it."""

import re
import tomllib
from pathlib import Path

import yaml

import inventory
from controller.cluster.process.flags import VERSION

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
IGNORE = (ROOT / ".dockerignore").read_text().splitlines()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_every_package_is_copied_and_none_is_kept_out_of_the_build() -> None:
    packages = set(PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
    copied = set(re.findall(r"^COPY (\w+) /build/src/", DOCKERFILE, re.MULTILINE))
    assert copied == packages
    assert {f"!{name}" for name in packages} <= set(IGNORE)


def test_programs_chart_and_package_have_one_version() -> None:
    chart = yaml.safe_load((ROOT / "charts" / "tessera" / "Chart.yaml").read_text())
    told = {"chart": chart["version"], "image": chart["appVersion"], "package": PROJECT["project"]["version"]}
    told |= {"agent and command": inventory.__version__, "controller": VERSION}
    assert set(told.values()) == {VERSION}, told
    assert f"tessera-agent:{VERSION}" in (ROOT / "docs" / "install.md").read_text()


def test_packages_are_installed_by_hash_and_nothing_is_compiled() -> None:
    assert "--require-hashes" in DOCKERFILE
    assert "--only-binary=:all:" in DOCKERFILE
    assert "--hash=sha256:" in (ROOT / "requirements" / "run.txt").read_text()


def test_the_commands_are_those_of_the_project() -> None:
    (made,) = re.findall(r"for command in (.*); do", DOCKERFILE)
    commands = dict(pair.split(":") for pair in made.split())
    # In the image there is no kubectl that would look for a plugin.
    scripts = {name: of for name, of in PROJECT["project"]["scripts"].items() if not name.startswith("kubectl")}
    assert {name: f"{room}.main:main" for name, room in commands.items()} == scripts


def test_the_build_sees_nothing_but_what_the_image_is_made_of() -> None:
    assert "*" in IGNORE
    sources = {line.split()[1] for line in DOCKERFILE.splitlines() if line.startswith("COPY ")} - {"--from=build"}
    assert {f"!{source}" for source in sources} == {line for line in IGNORE if line.startswith("!")}


def test_every_container_of_the_chart_runs_the_image_that_the_values_name() -> None:
    templates = "\n".join(path.read_text() for path in (ROOT / "charts" / "tessera" / "templates").rglob("*.*"))
    assert set(re.findall(r"^ *image: (.*)$", templates, re.MULTILINE)) == {'{{ include "tessera.image" . | quote }}'}
    helper = templates[templates.index('define "tessera.image"') :]
    assert helper.index("@{{ .Values.image.digest }}") < helper.index(".Values.image.tag"), "the digest wins"


def test_no_installer_is_left_in_the_image() -> None:
    last = DOCKERFILE[DOCKERFILE.rindex("\nFROM ") :]
    assert re.search(r"pip uninstall .*\bpip setuptools wheel\b", last)
    assert "import ensurepip" in last
    assert {"/usr/bin/apt*", "/usr/bin/dpkg*"} <= set(last.split())
    assert "--without-pip /opt/tessera" in DOCKERFILE
    assert last.index("uninstall") < last.index("COPY --from=build")
