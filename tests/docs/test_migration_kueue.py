"""What the page says of Kueue's parts, the same or not yet, is what the code has."""

import re
from pathlib import Path

from controller.cluster.config.settings import KNOWN_FRAMEWORKS, MANAGED_FRAMEWORKS, VOLCANO_JOB
from controller.jobs.framework.kind import JobKind
from controller.jobs.kinds.table import JOB_KINDS
from controller.jobs.serving.kind import StampedKind
from controller.jobs.serving.table import STAMPED_KINDS

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGE = (DOCS / "migration-kueue.md").read_text()
ROWS = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", PAGE, re.MULTILINE)
KUBEFLOW = {"PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob"}
"""On the page as Kubeflow's jobs."""


def missing(text: str) -> bool:
    return "not yet" in text or "nothing of the kind" in text


def test_a_framework_is_not_yet_there_exactly_where_the_code_does_not_manage_it() -> None:
    absent = " ".join(left for left, right in ROWS if missing(right))
    told = {name for name in KNOWN_FRAMEWORKS if f"`{name}`" in absent}
    assert told == KNOWN_FRAMEWORKS - MANAGED_FRAMEWORKS


def test_every_kind_that_is_managed_is_among_the_same_ones() -> None:
    there = " ".join(left for left, right in ROWS if not missing(right))
    kinds: tuple[JobKind | StampedKind, ...] = (*JOB_KINDS, *STAMPED_KINDS)
    for kind in kinds:
        by_name = f"`{kind.framework}`" in there or re.search(rf"\b{kind.kind}\b", there)
        assert by_name or (kind.kind in KUBEFLOW and "Kubeflow's jobs" in there), kind.framework


def test_no_row_says_both() -> None:
    absent = {word for left, right in ROWS if missing(right) for word in re.findall(r"`([^`]+)`", left)}
    there = {word for left, right in ROWS if not missing(right) for word in re.findall(r"`([^`]+)`", left)}
    assert absent & there == set()


def test_objects_that_are_the_same_have_a_crd_in_the_chart() -> None:
    (named,) = (right for left, right in ROWS if left == "Objects")
    kinds = set(re.findall(r"\b[A-Z]\w+", named.partition(", in both")[0]))
    crds = (path.read_text() for path in (ROOT / "charts/tessera/crds").glob("*.kueue.x-k8s.io.yaml"))
    served = {kind for text in crds for kind in re.findall(r"^    kind: (\w+)$", text, re.MULTILINE)}
    assert kinds == served


def test_no_page_says_that_there_is_no_page() -> None:
    assert (ROOT / "controller/people/page").is_dir()
    told = {page.name: page.read_text() for page in DOCS.glob("**/*.md") if page.parent.name != "decisions"}
    assert [name for name, text in told.items() if re.search(r"no (web )?page yet", text)] == []
    (right,) = (right for left, right in ROWS if "enableKueueViz" in left)
    assert "(page.md)" in right


def test_the_first_page_counts_the_kinds_of_jobs() -> None:
    names = {14: "fourteen", 15: "fifteen", 16: "sixteen"}
    assert f"[jobs of {names[len(JOB_KINDS)]} kinds]" in (ROOT / "README.md").read_text()


def test_the_page_of_kinds_names_what_is_not_managed() -> None:
    told = (DOCS / "job-kinds.md").read_text().partition("## Not there yet")[2]
    for name in KNOWN_FRAMEWORKS - MANAGED_FRAMEWORKS:
        assert re.search(name.rpartition("/")[2], told, re.IGNORECASE), name
    assert VOLCANO_JOB in MANAGED_FRAMEWORKS
