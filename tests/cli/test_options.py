"""Which kubeconfigs a command reads: one that is named, or those of $KUBECONFIG, which count as one."""

import base64
import json
import os
from pathlib import Path
from typing import Any

import click.testing
import pytest

from cli.main import tessera
from cli.options import default_kubeconfigs
from tests.support.cli.shell import Shell


def saved(path: Path, **body: Any) -> Path:
    path.write_text(json.dumps({key.replace("_", "-"): value for key, value in body.items()}))
    return path


def listed(*paths: Path) -> str:
    return os.pathsep.join(map(str, paths))


def test_of_those_that_are_named_the_ones_that_are_there_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, gone, second = saved(tmp_path / "a"), tmp_path / "gone", saved(tmp_path / "b")
    monkeypatch.setenv("KUBECONFIG", f":{listed(first, gone, second, first)}:")
    assert default_kubeconfigs() == (first, second)
    monkeypatch.setenv("KUBECONFIG", str(gone))
    assert default_kubeconfigs() == (gone,)
    monkeypatch.setenv("KUBECONFIG", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_kubeconfigs() == (tmp_path / ".kube/config",)


async def test_several_files_count_as_one_and_one_that_is_named_counts_alone(shell: Shell, tmp_path: Path) -> None:
    shell.scene.queue("research")
    cluster = shell.kubeconfig
    context = {"name": "team-b", "context": {"cluster": "c", "user": "u", "namespace": "team-b"}}
    shell.kubeconfig = saved(tmp_path / "contexts", contexts=[context], current_context="team-b")
    said = (await shell.run("workload", "show", "no", code=1)).stderr
    assert "contexts[team-b].cluster: found 'c', expected a cluster with a server" in said
    shell.kubeconfig = Path(listed(shell.kubeconfig, cluster))
    assert "team-b/no" in (await shell.run("workload", "show", "no", code=1)).stderr
    assert "team/no" in (await shell.run("workload", "show", "no", "--context", "x", code=1)).stderr
    assert "team/no" in (await shell.run("workload", "show", "no", "--kubeconfig", str(cluster), code=1)).stderr


@pytest.mark.parametrize("words", [("workload", "list"), ("version",), ("queue", "list"), ("page", "--no-browser")])
def test_a_certificate_that_tls_cannot_use_is_one_line(tmp_path: Path, words: tuple[str, ...]) -> None:
    cluster = {"server": "https://127.0.0.1:9", "certificate-authority-data": base64.b64encode(b"no PEM").decode()}
    file = saved(
        tmp_path / "config",
        clusters=[{"name": "c", "cluster": cluster}],
        contexts=[{"name": "x", "context": {"cluster": "c"}}],
        current_context="x",
    )
    done = click.testing.CliRunner().invoke(tessera, words, env={"KUBECONFIG": str(file)})
    assert done.exception is None or isinstance(done.exception, SystemExit)
    assert f"{file}: clusters[c].certificate-authority-data: " in done.output
    assert "TLS material for https://127.0.0.1:9 is unusable" in done.output
