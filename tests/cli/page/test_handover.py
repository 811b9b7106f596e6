"""The browser's arguments, which all users of a machine can read, do not have the address that signs in."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cli.page import command
from cli.page.handover import handed_over

KUBECONFIG = {
    "current-context": "c",
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
    "users": [{"name": "u", "user": {"token": "caller"}}],
}
ADDRESS = "http://127.0.0.1:9000/open/once"


def path_of(uri: str) -> Path:
    return Path(uri.removeprefix("file://"))


def test_the_address_is_in_a_file_that_its_owner_alone_reads_while_it_is_needed(tmp_path: Path) -> None:
    with handed_over(ADDRESS, tmp_path) as uri:
        file = path_of(uri)
        assert file.parent == tmp_path
        assert "once" not in uri
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert f'content="0;url={ADDRESS}"' in file.read_text()
    assert not file.exists()


def test_without_a_home_to_write_to_it_is_among_the_temporary_files(tmp_path: Path) -> None:
    with handed_over(ADDRESS, tmp_path / "none") as uri:
        assert stat.S_IMODE(path_of(uri).stat().st_mode) == 0o600
    assert not path_of(uri).exists()


@pytest.mark.parametrize("alone", [True, False])
def test_the_command_starts_the_browser_with_the_file(
    alone: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []

    async def served(*given: Any) -> None:
        await given[2](ADDRESS)

    config = tmp_path / "kubeconfig"
    config.write_text(json.dumps(KUBECONFIG))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("webbrowser.open", lambda uri: started.append(path_of(uri).read_text()))
    monkeypatch.setattr(command, "serve", served)
    done = CliRunner().invoke(command.page, ["--kubeconfig", str(config), *(["--no-browser"] if alone else [])])
    assert done.exit_code == 0, done.output
    assert ADDRESS in done.output
    assert [ADDRESS in text for text in started] == ([] if alone else [True])
    assert list(tmp_path.glob("tessera-page-*")) == []
