"""A build says how far it is, and how long it still takes only while that can be told."""

import io
import os
import stat
from collections.abc import Mapping
from pathlib import Path

import pytest

from hack.cluster.programs import binaries, golang
from hack.cluster.programs.progress import Progress, describe


def test_what_is_left_follows_from_the_pace_of_late() -> None:
    line = describe("building", done=500, total=2000, elapsed_s=100, pace=5.0)
    assert line == "building: 500 of 2000 packages (25%), 1 min 40 s, about 5 min 00 s left to compile"


@pytest.mark.parametrize(
    ("done", "total", "line"),
    [
        (12, None, "building: 12 packages, 9 s"),
        (2700, 2003, "building: 2700 packages, 9 s"),
        (2003, 2003, "building: the last of 2003 packages, then linking, 9 s"),
        (0, 0, "building: the last of 0 packages, then linking, 9 s"),
    ],
    ids=["total unknown", "more than were counted", "all begun", "all in the cache"],
)
def test_what_nobody_can_know_is_not_said(done: int, total: int | None, line: str) -> None:
    assert describe("building", done=done, total=total, elapsed_s=9, pace=5.0) == line


def test_a_build_is_at_a_hundred_percent_only_when_the_last_package_has_begun() -> None:
    assert "(99%)" in describe("building", done=1999, total=2000, elapsed_s=1)


class Pipe:
    """A progress that writes into a pipe, and its clock."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.out = io.StringIO()
        self.progress = Progress("b", out=self.out, clock=lambda: self.now_s)

    def after(self, seconds: float) -> str:
        """The last line, so much later."""
        self.now_s += seconds
        self.progress.tick()
        return self.out.getvalue().splitlines()[-1]

    def packages(self, count: int, every_s: float) -> None:
        for _ in range(count):
            self.now_s += every_s
            self.progress.step()


def test_before_it_is_known_what_is_to_be_built_nothing_is_estimated() -> None:
    pipe = Pipe()
    assert pipe.after(16) == "b: 0 packages, 16 s, finding out what is to be built"
    pipe.progress.expect(100)
    assert pipe.after(0) == "b: 0 of 100 packages (0%), 16 s"


def test_the_estimate_is_of_the_last_minute_not_of_the_quick_beginning() -> None:
    pipe = Pipe()
    pipe.progress.expect(400)
    pipe.packages(200, 0.125)
    assert pipe.after(0) == "b: 120 of 400 packages (30%), 15 s, about 35 s left to compile"
    pipe.packages(100, 1.0)
    assert pipe.after(15) == "b: 300 of 400 packages (75%), 2 min 20 s, about 2 min 10 s left to compile"


def test_while_nothing_comes_the_estimate_goes() -> None:
    pipe = Pipe()
    pipe.progress.expect(400)
    pipe.packages(200, 0.1)
    assert pipe.after(61) == "b: 200 of 400 packages (50%), 1 min 21 s"


def test_while_modules_are_fetched_nothing_is_estimated() -> None:
    pipe = Pipe()
    pipe.progress.expect(400)
    pipe.packages(200, 0.1)
    pipe.progress.note("downloading modules")
    assert pipe.after(15) == "b: 200 of 400 packages (50%), 35 s, downloading modules"


def test_what_stands_there_while_it_links_says_so() -> None:
    pipe = Pipe()
    pipe.progress.expect(30)
    pipe.packages(30, 0.1)
    assert pipe.after(0) == "b: the last of 30 packages, then linking, 3 s"
    assert pipe.after(900) == "b: the last of 30 packages, then linking, 15 min 03 s"


def test_it_ends_with_how_long_it_took_and_says_nothing_after_that() -> None:
    pipe = Pipe()
    with pipe.progress as progress:
        pipe.now_s = 61.0
    progress.tick()
    assert pipe.out.getvalue().splitlines()[-1] == "b: done in 1 min 01 s"


def test_a_build_that_failed_is_not_called_done() -> None:
    pipe = Pipe()
    with pytest.raises(ValueError, match="no"), pipe.progress:
        raise ValueError("no")
    assert "done" not in pipe.out.getvalue()


PLAN = """\
mkdir -p $WORK/b006/

#
# internal/goarch
#

echo '# import config' > $WORK/b006/importcfg # internal
cat >$WORK/b002/importcfg << 'EOF' # internal
# import config
packagefile errors=$WORK/b003/_pkg_.a
EOF

#
# k8s.io/api/core/v1
#

#
# not a package
#
internal/goarch
"""


def test_the_packages_of_a_plan_are_those_with_a_banner() -> None:
    assert golang.count_planned(PLAN.splitlines(keepends=True)) == 2


def go_that(tmp_path: Path, script: str) -> Path:
    """A ``go`` that logs its words and does as the script says."""
    go = tmp_path / "go"
    go.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/words\n{script}')
    go.chmod(go.stat().st_mode | stat.S_IXUSR)
    return go


def test_a_build_that_cannot_be_planned_has_no_total(tmp_path: Path) -> None:
    go = go_that(tmp_path, "exit 1\n")
    assert golang.packages_to_build([str(go), "build", "."], tmp_path, os.environ) is None


def test_what_is_planned_is_the_very_build_that_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = "".join(f"#\n# p/{number}\n#\n" for number in range(3))
    script = f"""case " $* " in
    *" -n "*) printf '{plan.replace(chr(10), chr(92) + "n")}' >&2;;
    *) printf 'p/0\\np/1\\np/2\\n' >&2; for one in containerd containerd-shim-runc-v2 ctr; do : > "$GOBIN/$one"; done;;
    esac
    """
    go = go_that(tmp_path, script)
    monkeypatch.setattr(golang, "find", lambda _: go)
    out = tmp_path / "out"
    out.mkdir()
    binaries._compile(binaries.PROGRAMS["containerd"], out)
    planned, built = (tmp_path / "words").read_text().splitlines()
    assert planned == built.replace("install ", "install -n ", 1)
    assert "the last of 3 packages, then linking" in capsys.readouterr().err


def test_the_environment_of_the_plan_is_the_builds(tmp_path: Path) -> None:
    around: Mapping[str, str] = {**os.environ, "CGO_ENABLED": "0"}
    go = go_that(tmp_path, 'test "$CGO_ENABLED" = 0 || exit 1\n')
    assert golang.packages_to_build([str(go), "build"], tmp_path, around) == 0
