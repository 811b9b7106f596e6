"""An agent as a child process, with everything it needs in one folder: for the demos, the benchmark and the tests."""

import contextlib
import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import psutil

from agent.report import NodeReport
from cli.access.local import fetch
from hack.cluster.nodes.network import choose_ports
from hack.show import script


def free_port() -> int:
    """A TCP port without a listener now, and none that an outgoing connection may be given."""
    return choose_ports(["any"], claimed=())["any"]


def plain_kubeconfig(server: str) -> str:
    """A kubeconfig for the fake API server, in JSON: the agent then needs no YAML parser, as in a cluster."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "bench",
            "clusters": [{"name": "bench", "cluster": {"server": server}}],
            "users": [{"name": "bench", "user": {"token": "bench"}}],
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
        }
    )


@dataclass
class AgentProcess:
    """``tessera-agent`` with its state, log and config below ``folder``. ``config`` is the config file's text."""

    folder: Path
    fleet: Path | None
    kubelet_dir: Path
    node_name: str = "node-1"
    kubeconfig: str = "none"
    cdi_dir: Path | None = None
    config: str | None = None
    flags: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def state_dir(self) -> Path:
        return self.folder / "state"

    @property
    def log_path(self) -> Path:
        return self.folder / "agent.log"

    @property
    def config_path(self) -> Path:
        return self.folder / "config.yaml"

    @property
    def command(self) -> list[str]:
        words = [script("tessera-agent"), "--node-name", self.node_name, "--kubelet-dir", str(self.kubelet_dir)]
        words += ["--state-dir", str(self.state_dir), "--cdi-dir", str(self.cdi_dir or self.folder / "cdi")]
        words += ["--metrics-address", f"127.0.0.1:{self.port}", "--kubeconfig", self.kubeconfig]
        if self.fleet is not None:
            words += ["--simulate", str(self.fleet)]
        if self.config is not None:
            words += ["--config", str(self.config_path)]
        return [*words, *self.flags]

    def start(self) -> None:
        """Start it; its log is appended to."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.config is not None:
            self.config_path.write_text(self.config)
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment},
                start_new_session=True,
            )

    def stop(self, timeout_s: float = 60.0) -> int:
        """SIGTERM, and its exit code."""
        return self._end(signal.SIGTERM, timeout_s)

    def kill(self) -> None:
        """SIGKILL: nothing is tidied up."""
        self._end(signal.SIGKILL, 60.0)

    def reload(self, config: str) -> None:
        """Another config file, in one step, and SIGHUP: it is looked at without a signal too."""
        new = self.config_path.with_name(".new.yaml")
        new.write_text(config)
        new.replace(self.config_path)
        if self.process is not None:
            self.process.send_signal(signal.SIGHUP)

    def report(self) -> NodeReport:
        """What ``tessera node -o json`` prints. Raises click.ClickException while it does not answer."""
        return msgspec.json.decode(fetch(self.state_dir / "agent.sock", "/v1/node"), type=NodeReport)

    def sim(self, **order: Any) -> dict[str, Any]:
        """An order to its simulated hardware: ``sim(gpu=3, xid=79)``."""
        from simulator import client

        return client.order(self.state_dir, order)

    def get(self, path: str) -> tuple[int, str]:
        """Status and body of its HTTP endpoint."""
        with contextlib.closing(urllib.request.build_opener()) as opener:
            try:
                with opener.open(f"http://127.0.0.1:{self.port}{path}", timeout=30) as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as refused:
                with refused:
                    return refused.code, refused.read().decode()

    def log(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def rss_mib(self) -> float:
        """Resident memory now."""
        assert self.process is not None
        return float(psutil.Process(self.process.pid).memory_info().rss) / 2**20

    def own_mib(self) -> float:
        """What of it is memory of its own: all but pages of files, which the kernel may drop (proc_pid_smaps(5))."""
        assert self.process is not None
        sums = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text()
        return int(sums.split("Anonymous:")[1].split()[0]) / 1024

    def cpu_s(self) -> float:
        """CPU time so far."""
        assert self.process is not None
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)

    def _end(self, number: int, timeout_s: float) -> int:
        if self.process is None:
            return 0
        process, self.process = self.process, None
        process.send_signal(number)
        return process.wait(timeout_s)
