"""The findings of ``tessera doctor`` on a node, and its advice: each finding is a line, its advice another.

``problem``, ``why`` and ``reason`` are the agent's own words or the kubelet's.
"""

from inventory.words.catalog import Kind, Place, because, plural, said

_found = said(Place.DOCTOR, Kind.NOTE)
_advice = said(Place.DOCTOR, Kind.PART)


@_found
def silent(why: str) -> str:
    return f"the agent does not answer: {why}"


@_advice
def start_agent() -> str:
    return "start it, or give --state-dir"


@_found
def runs(version: str) -> str:
    return f"the agent runs, version {version}"


@_advice
def own_word() -> str:
    return "the agent's own word: correct the configuration or the hardware"


@_found
def not_registered(resource: str, why: str) -> str:
    return f"{resource} is not registered with the kubelet{because(why)}"


@_advice
def see_kubelet() -> str:
    return "see kubelet's log"


@_found
def driver_answers(version: str, gpus: object) -> str:
    return f"driver {version}, {plural(gpus, 'GPU')}"


@_found
def no_driver() -> str:
    return "no NVIDIA driver: /dev/nvidiactl is not there"


@_advice
def load_driver() -> str:
    return "load it: modprobe nvidia"


@_found
def no_session() -> str:
    return "the agent has no NVML session"


@_advice
def ask_nvidia_smi() -> str:
    return "nvidia-smi says why; see the agent's log"


@_found
def answers(socket: object) -> str:
    return f"{socket} answers"


@_found
def nothing_listens(socket: object) -> str:
    return f"{socket}: nothing listens"


@_advice
def start_kubelet() -> str:
    return "start the kubelet, or give --kubelet-dir"


@_advice
def holders_unknown() -> str:
    return "without it the holders of devices are unknown"


@_found
def another_plugin(socket: str) -> str:
    return f"another device plugin serves {socket}"


@_advice
def remove_plugin() -> str:
    return "remove NVIDIA's device plugin here"


@_found
def another_agent(socket: str) -> str:
    return f"another agent serves {socket}"


@_advice
def one_agent() -> str:
    return "one agent a node: end the other"


@_found
def no_cdi(file: object) -> str:
    return f"{file}: CDI is not enabled, and deviceListStrategy hands devices over by it"


@_advice
def enable_cdi() -> str:
    return "set enable_cdi = true in containerd's cri plugin and restart it"


@_found
def reads_cdi() -> str:
    return "containerd reads CDI specs"


@_found
def passes_daemon(uuid: str) -> str:
    return f"{uuid}: programs can pass the MPS daemon by"


@_advice
def set_mode(uuid: str, number: object) -> str:
    return f"nvidia-smi -i {uuid} -c {number}"


@_found
def exclusive(uuid: str, mode: str) -> str:
    return f"{uuid}: the compute mode is {mode} and no MPS daemon is there: one process at most gets the GPU"


@_found
def no_program(program: str) -> str:
    return f"{program} is not there"


@_advice
def install_tools() -> str:
    return "install the driver's compute tools; in a container NVIDIA_DRIVER_CAPABILITIES needs compute,utility"


@_found
def no_server(program: str) -> str:
    return f"nvidia-cuda-mps-server is not beside {program}"


@_advice
def install_driver() -> str:
    return "install the whole driver"


@_advice
def shorter_folder() -> str:
    return "give a shorter --state-dir, or flags.mpsRoot"


@_found
def closed_folder(folder: object) -> str:
    return f"{folder} lets no other user pass: MPS servers of pods that are not root's cannot start"


@_advice
def open_folder(folder: object) -> str:
    return f"chmod o+x {folder}"


@_found
def shared_shm(folder: object) -> str:
    return f"{folder} is no file system of its own"


@_advice
def mount_shm() -> str:
    return "mount a tmpfs there, or mps.privateShm: true"


@_found
def daemon_ready(name: str, restarts: object) -> str:
    return f"{name}: the MPS daemon is ready, {plural(restarts, 'restart')}"


@_found
def daemon_fails(name: str, reason: str) -> str:
    return f"{name}: {reason}"


@_advice
def see_mps_logs() -> str:
    return "see the logs below the MPS root"


@_found
def daemon_left(pid: object, device: str) -> str:
    return f"the MPS daemon {pid} runs on for {device}, which no agent looks after"


@_found
def folder_left(device: str) -> str:
    return f"there is a stale MPS folder of {device}, which no agent looks after"


@_advice
def tidied_up() -> str:
    return "start the agent: it tidies up"


@_found
def strange_daemon(pid: object, folder: object) -> str:
    return f"an MPS daemon that is not the agent's (pid {pid}) has CUDA's default folder {folder}"


@_advice
def end_strange_daemon(folder: object) -> str:
    return f"end it: echo quit | CUDA_MPS_PIPE_DIRECTORY={folder} nvidia-cuda-mps-control"


@_found
def user_waits(device: str, served: object, waiting: object) -> str:
    return f"{device}: its MPS server serves user {served}, and a client of user {waiting} waits for it to be free"


@_advice
def one_user() -> str:
    return "give the pods that share a GPU one runAsUser, or set mps.multiUser"
