"""``tessera advise`` as a person calls it, against a Prometheus whose series are written down here."""

import base64
import json
import re
import ssl
import time
from pathlib import Path
from typing import Any

import click
import click.testing
import pytest

from cli.advise.advice import AdviceKind
from cli.advise.command import advise
from cli.advise.queries import queries
from cli.main import tessera
from controller.cluster.webhooks.certificates import advanced
from tests.support.prometheus import served, vector

HOST = {"Hostname": "n1", "UUID": "GPU-1"}
POD = {**HOST, "namespace": "team", "pod": "train", "container": "main"}
MODEL = {**HOST, "modelName": "NVIDIA H100 80GB HBM3"}
MIB = 1 << 20
FULL: dict[str, list[tuple[dict[str, str], float]]] = {
    "there": [({}, 8)],
    "allocation": [({**POD, "resource": "nvidia.com/gpu", "mode": "whole"}, 1)],
    "age": [({**POD, "resource": "nvidia.com/gpu", "mode": "whole"}, 86400)],
    "busy": [(POD, 0.08)],
    "memory": [(POD, 4096 * MIB)],
    "most": [(POD, 5120 * MIB)],
    "models": [(MODEL, 1)],
}


class Stored:
    """Answers each of the command's queries with the vector of that name; others are refused as Prometheus does."""

    def __init__(self, vectors: dict[str, list[tuple[dict[str, str], float]]], window_s: float = 604800) -> None:
        self.vectors = vectors
        self.names = {query: name for name, query in queries(window_s, None).items()}
        self.headers: list[str] = []
        self.answer: tuple[int, bytes] | None = None

    def body(self, query: str) -> tuple[int, bytes]:
        if self.answer is not None:
            return self.answer
        if query not in self.names:
            return 400, json.dumps({"status": "error", "errorType": "bad_data", "error": "parse error"}).encode()
        return vector(self.vectors.get(self.names[query], []))


def run(stored: Stored, *words: str, code: int = 0) -> str:
    with served(stored) as url:
        result = click.testing.CliRunner().invoke(tessera, ["advise", "--prometheus", url, *words])
    assert result.exit_code == code, result.output
    return result.output


def test_it_names_the_pod_what_it_asked_what_it_used_and_what_would_do() -> None:
    found = run(Stored(FULL))
    line = next(one for one in found.splitlines() if "team/train" in one)
    assert " ".join(line.split()) == "team/train 1 x nvidia.com/gpu 0.08 GPU 5.0 GiB 1 x nvidia.com/mig-1g.10gb 0.86"
    assert "team: 0.86 of 1.00 GPUs" in found
    assert "0.86 of 1.00 GPUs would be free; 0 requests are as they should be" in found


def test_the_same_for_programs() -> None:
    found = json.loads(run(Stored(FULL), "-o", "json", "--prefer", "fraction"))
    (one,) = found["advice"]
    assert one | {"needsGpus": round(one["needsGpus"], 9), "freesGpus": round(one["freesGpus"], 9)} == {
        "namespace": "team",
        "pod": "train",
        "container": "main",
        "product": "NVIDIA H100 80GB HBM3",
        "mode": "whole",
        "asked": "1 x nvidia.com/gpu",
        "askedGpus": 1.0,
        "activityP95": 0.08,
        "memoryP95Mib": 4096.0,
        "memoryMaxMib": 5120.0,
        "kind": "fraction",
        "do": "10 x tessera.dev/gpu-percent",
        "needsGpus": 0.1,
        "freesGpus": 0.9,
        "why": "",
    }
    assert (found["windowSeconds"], found["headroom"]) == (604800.0, 0.2)
    assert found["namespaces"]["team"]["askedGpus"] == found["askedGpus"] == 1.0


@pytest.mark.parametrize(("sm", "dram", "shown"), [(0.02, 0.0, 0.02), (0.02, 0.3, 0.3)])
def test_where_gpm_tells_them_sms_and_bandwidth_decide(sm: float, dram: float, shown: float) -> None:
    stored = Stored({**FULL, "busy": [(POD, 1.0)], "sm": [(POD, sm)], "dram": [(POD, dram)]})
    (one,) = json.loads(run(stored, "-o", "json"))["advice"]
    assert one["activityP95"] == shown
    assert one["kind"] == "mig"


def test_the_page_shows_the_answer_as_it_is() -> None:
    page = (Path(__file__).parents[3] / "docs/advise.md").read_text()
    shown = json.loads(page.split("```json\n")[1].split("```")[0])
    found = json.loads(run(Stored(FULL), "-o", "json"))
    assert shown.keys() == found.keys()
    assert shown["advice"][0].keys() == found["advice"][0].keys()
    assert all(f"`{kind}`" in page for kind in AdviceKind)


def test_the_page_lists_the_options_and_their_defaults() -> None:
    page = (Path(__file__).parents[3] / "docs/advise.md").read_text()
    listed = dict(re.findall(r"^\| `(--[a-z-]+)[^|]*\| *`?([^`|]*?)`? *\|", page, re.MULTILINE))
    options = {one.opts[0]: one.default for one in advise.params if isinstance(one, click.Option)}
    assert set(listed) == {name for name in options if name not in ("-n", "-o")}
    assert {name: value for name, value in listed.items() if value.strip() and name != "--prometheus"} == {
        name: str(value)
        for name, value in options.items()
        if name in ("--window", "--headroom", "--min-age", "--prefer", "--granularity")
    }


def test_a_product_that_is_not_known_is_measured_and_has_no_mig() -> None:
    model = {**HOST, "modelName": "NVIDIA Z1"}
    stored = Stored({**FULL, "models": [(model, 1)], "sizes": [(model, 51200)]})
    (one,) = json.loads(run(stored, "-o", "json"))["advice"]
    assert one["do"] == "12 x tessera.dev/gpu-percent"


@pytest.mark.parametrize(("used", "kind"), [([], "release"), ([(POD, 3.0)], "mig")])
def test_a_device_that_was_never_in_use_is_given_back_whatever_the_driver_holds_of_it(
    used: list[tuple[dict[str, str], float]], kind: str
) -> None:
    idle: dict[str, list[tuple[dict[str, str], float]]] = {
        "busy": [(POD, 0.0)],
        "memory": [(POD, 44 * MIB)],
        "most": [(POD, 44 * MIB)],
        "empty": [(POD, 40.0)],
    }
    (one,) = json.loads(run(Stored(FULL | idle | {"used": used}), "-o", "json"))["advice"]
    assert one["kind"] == kind


def test_a_device_without_figures_is_listed_with_the_reason() -> None:
    assert "no advice for team/train: nothing tells how busy" in run(Stored({**FULL, "busy": [(POD, float("nan"))]}))


def test_a_container_is_as_old_as_its_youngest_device() -> None:
    held = {"resource": "nvidia.com/gpu", "mode": "whole"}
    other = {**POD, "UUID": "GPU-2"}
    both = [({**POD, **held}, 1.0), ({**other, **held}, 1.0)]
    ages = [({**POD, **held}, 86400.0), ({**other, **held}, 60.0)]
    models = [(MODEL, 1.0), ({**MODEL, "UUID": "GPU-2"}, 1.0)]
    (one,) = json.loads(run(Stored(FULL | {"allocation": both, "age": ages, "models": models}), "-o", "json"))["advice"]
    assert one["why"] == "seen for 60 s, 3600 s are wanted"


def test_nobody_holds_a_gpu_is_an_answer() -> None:
    assert run(Stored({"there": [({}, 1)]})) == "no container holds a GPU\n"


def test_the_token_goes_along(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret\n")
    stored = Stored(FULL)
    run(stored, "--token-file", str(file))
    assert set(stored.headers) == {"Bearer secret"}


@pytest.mark.parametrize("status", [401, 403])
def test_who_is_not_let_in_is_told_what_would_let_him_in(status: int) -> None:
    stored = Stored(FULL)
    stored.answer = status, b"Unauthorized\n"
    assert f"answered {status}, expected a --token-file that it accepts\n" in run(stored, code=1)


def test_a_password_in_the_url_is_used_and_never_shown() -> None:
    stored = Stored(FULL)
    with served(stored) as url:
        words = ["advise", "--prometheus", url.replace("//", "//me:hush%21@")]
        assert click.testing.CliRunner().invoke(tessera, words).exit_code == 0
        stored.answer = 503, b"{}"
        failed = click.testing.CliRunner().invoke(tessera, words)
    assert set(stored.headers) == {"Basic " + base64.b64encode(b"me:hush!").decode()}
    assert failed.exit_code == 1
    assert "hush" not in failed.output


def test_a_certificate_is_trusted_where_its_authority_is_named_and_nowhere_else(tmp_path: Path) -> None:
    kept = advanced(None, ("127.0.0.1",), time.time())
    for name, content in (("crt", kept.serving.certificate), ("key", kept.serving.key), ("ca", kept.trusted)):
        (tmp_path / name).write_bytes(content)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "crt", tmp_path / "key")
    with served(Stored(FULL), tls) as url:
        words = ["advise", "--prometheus", url]
        known = click.testing.CliRunner().invoke(tessera, [*words, "--ca-file", str(tmp_path / "ca")])
        strange = click.testing.CliRunner().invoke(tessera, words)
        useless = click.testing.CliRunner().invoke(tessera, [*words, "--ca-file", str(tmp_path / "key")])
    assert known.exit_code == 0, known.output
    assert (strange.exit_code, useless.exit_code) == (1, 1)
    assert strange.output.count("\n") == 1
    assert "expected one that --ca-file vouches for" in strange.output
    assert "found no certificate, expected some in PEM form" in useless.output


@pytest.mark.parametrize(
    ("vectors", "said"),
    [
        ({}, "expected a Prometheus that scrapes Tessera's agents"),
        ({**FULL, "renamed": [({}, 3.0)]}, "expected agents scraped with honor_labels"),
    ],
)
def test_what_is_missing_is_said_in_one_line(vectors: dict[str, Any], said: str) -> None:
    found = run(Stored(vectors), code=1)
    assert found.startswith("Error: http://127.0.0.1:")
    assert found.count("\n") == 1
    assert said in found


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((200, b"<html>"), "found no JSON"),
        ((503, b'{"status": "error", "error": "query timed out"}'), "answered 503: query timed out"),
        ((200, b'{"status": "success", "data": {"result": [1]}}'), "expected an instant vector"),
        ((200, b"[]"), "not what Prometheus says"),
    ],
)
def test_another_answer_than_prometheus_is_one_line(answer: tuple[int, bytes], said: str) -> None:
    stored = Stored(FULL)
    stored.answer = answer
    found = run(stored, code=1)
    assert said in found
    assert found.count("\n") == 1


def test_nobody_there_is_one_line() -> None:
    with served(Stored({})) as url:
        pass
    found = click.testing.CliRunner().invoke(tessera, ["advise", "--prometheus", url])
    assert found.exit_code == 1
    assert f"{url}: cannot be reached" in found.output


@pytest.mark.parametrize(
    "words",
    [
        ["--prometheus", "prometheus:9090"],
        ["--prometheus", "http://x:port"],
        ["--prometheus", "http://x:99999"],
        ["--prometheus", "http://x", "--window", "soon"],
        ["--prometheus", "http://x", "--window", "0s"],
        ["--prometheus", "http://x", "--headroom", "-1"],
        [],
    ],
    ids=str,
)
def test_a_wrong_question_is_exit_code_2(words: list[str]) -> None:
    assert click.testing.CliRunner().invoke(tessera, ["advise", *words]).exit_code == 2


def test_a_token_that_cannot_be_read_is_one_line() -> None:
    found = click.testing.CliRunner().invoke(
        tessera, ["advise", "--prometheus", "http://x", "--token-file", "/nowhere"]
    )
    said = "Error: --token-file: /nowhere: no such file or directory, expected a readable file\n"
    assert (found.exit_code, found.stderr) == (1, said)
