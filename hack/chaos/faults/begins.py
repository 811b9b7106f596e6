"""Which function does which kind of fault."""

from collections.abc import Mapping
from typing import Final

from hack.chaos.faults import floods, rapid
from hack.chaos.faults import others as other
from hack.chaos.faults import processes as process
from hack.chaos.faults.kinds import KINDS, KindName
from hack.chaos.faults.others import Begin, to_agent, to_kubelet, to_leader
from hack.chaos.proxy import Mode

_BEGINS: Final[Mapping[str, Begin]] = {
    "kill-agent": process.kill_agent,
    "kill-leader": process.kill_leader,
    "kill-controllers": process.kill_controllers,
    "kill-kubelet": process.kill_kubelet,
    "kill-containerd": process.kill_containerd,
    "kill-apiserver": process.kill_apiserver,
    "kill-etcd": process.kill_etcd,
    "kill-node": process.kill_node,
    "kill-everything": process.kill_everything,
    "stop-agent": process.stop_agent,
    "stop-leader": process.stop_leader,
    "stall-leader": other.stall_leader,
    "stop-kubelet": process.stop_kubelet,
    "cut-agent": to_agent(Mode(cut=True)),
    "cut-leader": to_leader(Mode(cut=True)),
    "cut-kubelet": to_kubelet(Mode(cut=True)),
    "delay-agent": to_agent(Mode(delay_s=1.0)),
    "delay-leader": to_leader(Mode(delay_s=1.0)),
    "duplicate-agent": to_agent(Mode(twice=True)),
    "duplicate-leader": to_leader(Mode(twice=True)),
    "watch-lag": to_leader(Mode(lag_s=60.0)),
    "answer-410": to_leader(Mode(answer=410, reads=True)),
    "answer-429": to_leader(Mode(answer=429)),
    "answer-500": to_leader(Mode(answer=500)),
    "bursts-504": to_leader(Mode(answer=504, bursts_s=1.5)),
    "stale-lists": to_leader(Mode(answer=410, reads=True, bursts_s=1.5, stale=True)),
    "expired-certificate": other.expired_certificate,
    "refused-token": to_agent(Mode(answer=401)),
    "webhook-timeout": other.webhook_timeout,
    "clock-agent": process.clock_agent,
    "clock-controllers": process.clock_controllers,
    "disk-full": process.disk_full,
    "disk-read-only": process.disk_read_only,
    "memory-agent": process.memory_agent,
    "memory-leader": process.memory_leader,
    "corrupt-checkpoint": process.corrupt_checkpoint,
    "corrupt-journal": process.corrupt_journal,
    "corrupt-lease": other.corrupt_lease,
    "nvml-hangs": other.nvml_hangs,
    "nvml-call-fails": other.nvml_call_fails,
    "nvml-fails": other.nvml_fails,
    "gpu-lost": other.gpu_lost,
    "gpu-lost-in-mig-change": other.gpu_lost_in_mig_change,
    "gpu-wants-reset": other.gpu_wants_reset,
    "rapid-layouts": rapid.rapid_layouts,
    "flood-ports": floods.flood_ports,
    "rapid-edits": rapid.rapid_edits,
}
BEGINS: Final[Mapping[KindName, Begin]] = {KINDS[KindName(name)].name: begin for name, begin in _BEGINS.items()}
