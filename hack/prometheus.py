"""A real Prometheus (Debian's) that scrapes agents: for tests of metrics, rules and dashboards."""

import contextlib
import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from hack.agents import free_port
from hack.cluster import prerequisites, waiting
from hack.cluster.errors import ClusterError

READY_S = 60.0


def ensure() -> None:
    """Return when ``prometheus`` and ``promtool`` are there; Debian's package is installed where we may."""
    if shutil.which("prometheus") is None:
        prerequisites.install(["prometheus"])
    if shutil.which("prometheus") is None:
        raise ClusterError("missing: prometheus (Debian: apt-get install prometheus)")


class Prometheus:
    """One that scrapes ``targets`` (``host:port``) every ``interval_s``. ``rules`` are rule files."""

    def __init__(
        self, folder: Path, targets: Sequence[str], *, interval_s: float = 1.0, rules: Sequence[Path] = ()
    ) -> None:
        self._folder = folder
        self.port = free_port()
        self._config = {
            "global": {"scrape_interval": f"{interval_s:g}s", "evaluation_interval": f"{interval_s:g}s"},
            "rule_files": [str(path) for path in rules],
            "scrape_configs": [
                {"job_name": "tessera-agent", "honor_labels": True, "static_configs": [{"targets": list(targets)}]}
            ],
        }

    @contextlib.contextmanager
    def running(self, environment: Mapping[str, str]) -> Iterator["Prometheus"]:
        """From ready to ended. Raises ClusterError when it does not become ready."""
        self._folder.mkdir(parents=True, exist_ok=True)
        config = self._folder / "prometheus.yaml"
        config.write_text(yaml.safe_dump(self._config))
        command = [
            "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--log.level=warn",
        ]
        log_path = self._folder / "prometheus.log"
        with log_path.open("wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        try:
            waiting.until(
                lambda: process.poll() is not None or self._ready(),
                f"Prometheus (log: {log_path})",
                timeout_s=READY_S,
                every_s=0.1,
            )
            if process.poll() is not None:
                raise ClusterError(f"Prometheus ended\n{waiting.tail(log_path)}")
            yield self
        finally:
            process.terminate()
            process.wait(30)

    def _ready(self) -> bool:
        with contextlib.suppress(OSError):
            self._get("/-/ready")
            return True
        return False

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """An instant query's vector: labels and value of each series."""
        answer: dict[str, Any] = json.loads(self._get(f"/api/v1/query?{urllib.parse.urlencode({'query': expression})}"))
        return [(series["metric"], float(series["value"][1])) for series in answer["data"]["result"]]

    def values(self, expression: str, *labels: str) -> dict[tuple[str, ...], float]:
        """The same by these labels' values; absent ones are empty."""
        return {tuple(names.get(label, "") for label in labels): value for names, value in self.query(expression)}

    def _get(self, path: str) -> bytes:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
            found: bytes = answer.read()
            return found
