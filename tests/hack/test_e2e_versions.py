"""Which scenes ``make e2e-versions`` runs on which Kubernetes, and what it exits with and says at the end."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hack.cluster.programs import binaries
from hack.e2e import plugin, tier
from hack.e2e.tier import Ended, Pytest
from hack.e2e.versions import SCENES, Scene, main, places, verdict
from tests.support.e2e import kubernetes

ROOT = Path(__file__).parents[2]
MINORS = [*binaries.OLDER_KUBERNETES]


def test_each_scene_is_there_and_says_why_a_version_matters() -> None:
    for scene in SCENES:
        for place in filter(None, (scene.place, scene.instead)):
            file, _, test = place.partition("::")
            text = (ROOT / file).read_text()
            assert re.search(r"^pytestmark = .*mark\.e2e\b", text, re.MULTILINE), place
            assert not test or f"def {test}(" in text, place
        assert len(scene.why) > 15
    assert len({scene.place for scene in SCENES}) == len(SCENES)


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.place)
def test_where_a_version_lacks_what_a_scene_is_about_another_asserts_that(scene: Scene) -> None:
    assert scene.since in MINORS
    assert bool(scene.instead) is (scene.since != min(MINORS))
    for minor in MINORS:
        assert (scene.place in places(minor)) is (minor >= scene.since)
        assert scene.instead == "" or (scene.instead in places(minor)) is (minor < scene.since)


def test_the_judge_of_rights_is_among_them_and_judges_a_part_of_the_tier() -> None:
    assert all("tests/e2e/test_rights.py" in places(minor) for minor in MINORS)
    assert "PART not in os.environ" in (ROOT / "tests/e2e/conftest.py").read_text()


def test_scenes_ask_for_the_features_of_the_version_that_runs() -> None:
    assert binaries.PROGRAMS["kubernetes"].version == kubernetes.VERSION
    spec = kubernetes.claims(on=False)
    *_, gates = flags = spec.apiserver_args
    assert (spec.controller_manager_args, spec.scheduler_args) == (flags, flags)
    assert gates.count("=false") == len(kubernetes.OF_CLAIMS)
    assert {*spec.kubelet_config["featureGates"], *kubernetes.LOCKED} == {*kubernetes.OF_CLAIMS}


def test_a_part_of_the_scenes_is_named_by_words() -> None:
    assert all("claims" in place for place in places("1.35", "claims"))
    assert set(places("1.35", "claims,chart")) == {*places("1.35", "claims"), *places("1.35", "chart")}
    assert places("1.35", "") == places("1.35")


@pytest.mark.parametrize(
    ("passed", "failed", "code", "said"),
    [
        (120, 0, 0, "e2e-versions: 1.35.4: 120 passed, 0 failed"),
        (119, 1, 1, "e2e-versions: 1.35.4: 119 passed, 1 failed"),
        (3, 0, 5, "e2e-versions: 1.35.4: 3 passed, 0 failed; pytest could not run all (exit code 5)"),
    ],
)
def test_the_last_line_of_a_version_counts(passed: int, failed: int, code: int, said: str) -> None:
    assert verdict("1.35.4", passed, failed, code) == said


@pytest.mark.parametrize(
    "words",
    [["--version", "1.34"], ["--version", "1.37"], ["--only", "claims,no-such-scene"], ["--only", "claims,"]],
)
def test_a_call_of_versions_that_cannot_work_exits_2_with_one_line(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "expected" in said
    assert said.count("\n") == 1


class Ran:
    """``main`` with builds and passes that end like this, pass for pass, in each version."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *ends: tuple[int, str, str], built: int = 0) -> None:
        self.ran: list[tuple[str, int]] = []
        self._ends = ends
        monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], built))
        monkeypatch.setattr(Pytest, "__call__", lambda run, _words, _only: self._call(run))

    def _call(self, run: Pytest) -> Ended:
        minor = run.environment[binaries.KUBERNETES_ENV]
        code, passed, failed = self._ends[sum(each == minor for each, _ in self.ran)]
        self.ran.append((minor, len(run.places)))
        run.passed, run.failed = (run.passed | frozenset(passed)) - frozenset(failed), frozenset(failed)
        return Ended(code, dict.fromkeys(failed, "how"))


def test_each_version_has_its_passes_and_its_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = Ran(monkeypatch, (0, "ab", ""), (0, "c", ""))
    assert main([]) == 0
    assert ran.ran == [(minor, len(places(minor))) for minor in MINORS for _ in tier.PASSES]
    said = capsys.readouterr().out
    for version in binaries.OLDER_KUBERNETES.values():
        assert f"e2e-versions: {version}: 3 passed, 0 failed\n" in said


def test_what_fails_twice_on_one_version_is_red(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Ran(monkeypatch, (1, "a", "b"), (0, "c", ""), (1, "", "b"))
    assert main(["--version", "1.36"]) == 1
    assert capsys.readouterr().out.endswith("e2e-versions: 1.36.3: 2 passed, 1 failed\n")


def test_files_that_somebody_chose_need_not_be_in_both_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    none = pytest.ExitCode.NO_TESTS_COLLECTED
    Ran(monkeypatch, (0, "ab", ""), (none, "", ""))
    assert main(["--version", "1.35", "--only", "claims"]) == 0
    Ran(monkeypatch, (0, "ab", ""), (none, "", ""))
    assert main(["--version", "1.35"]) == 1, "of all scenes there is one for each pass"


def test_a_version_that_cannot_be_built_is_red(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = Ran(monkeypatch, built=1)
    assert main(["--version", "1.35"]) == 1
    assert ran.ran == []
    assert capsys.readouterr().out.endswith("e2e-versions: 1.35.4: could not be built\n")


@pytest.fixture
def scene(tmp_path: Path) -> Path:
    """One test that passes, one that fails until a file is there, and one that fails as it is taken down."""
    file = tmp_path / "test_scene.py"
    file.write_text(
        "import pytest\npytestmark = pytest.mark.e2e\n"
        "@pytest.fixture\ndef torn():\n    yield\n    raise ValueError\n"
        "def test_good() -> None: pass\n"
        "import pathlib\n"
        f"def test_second() -> None: assert pathlib.Path({str(tmp_path / 'there')!r}).exists()\n"
        "def test_torn(torn) -> None: pass\n"
    )
    return file


def test_a_test_counts_as_it_ended_when_it_was_run_last(scene: Path, tmp_path: Path) -> None:
    run = Pytest(tmp_path, (str(scene),), {"PYTEST_ADDOPTS": f"--rootdir={tmp_path} -c {ROOT / 'pyproject.toml'}"})
    first = run(("-m", "e2e"), frozenset())
    (torn,) = [test for test in first.failed if "torn" in test]
    assert (first.code, len(run.passed), len(run.failed)) == (1, 1, 2)
    (tmp_path / "there").touch()
    assertion, teardown = sorted(first.failed.values())
    assert re.fullmatch(
        r"AssertionError: assert False \+ where False = exists\(\) .*\.\.\. \(test_scene.py:9\)", assertion
    )
    assert teardown == "teardown: ValueError (test_scene.py:6)"
    again = run(("-m", "e2e"), frozenset(first.failed))
    assert (again.code, [*again.failed]) == (1, [torn])
    assert (len(run.passed), run.failed) == (2, frozenset({torn}))
    assert plugin.read(tmp_path / "passed")


@pytest.mark.parametrize(
    "command", [("hack.cluster", "build"), ("hack.e2e",), ("hack.e2e.versions", "--version", "1.34")], ids=" ".join
)
def test_an_unknown_kubernetes_is_one_line_and_2(command: tuple[str, ...]) -> None:
    module, *words = command
    done = subprocess.run(
        [sys.executable, "-m", module, *words],
        env={**os.environ, binaries.KUBERNETES_ENV: "1.34"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "found '1.34', expected one of " in done.stderr
    assert "1.36, 1.35" in done.stderr
