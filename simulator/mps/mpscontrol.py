"""A stand-in for ``nvidia-cuda-mps-control``: the same command line, commands and files, for GPUs that are simulated.

    mpscontrol -f | -d [-S] [-M]      the control daemon, in the foreground or not
    echo COMMAND | mpscontrol         a command to the daemon of $CUDA_MPS_PIPE_DIRECTORY

Like the real one it keeps its socket, lock, pid file and log in those folders, starts a server process for one user at
a time as clients come, lets other users' clients wait until that one's have left, and hands limits to new clients. Two
things differ: clients speak a line of text (see ``mpsclient``), and nothing is computed. It imports nothing of the
simulator: it runs as a file of its own, as the real program does. Its behaviour follows NVIDIA's "Multi-Process
Service".
"""

import contextlib
import fcntl
import json
import os
import re
import selectors
import signal
import socket
import stat
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

PIPE_ENV, DEFAULT_PIPE = "CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"  # noqa: S108 - CUDA's own default
LOG_ENV, DEFAULT_LOG = "CUDA_MPS_LOG_DIRECTORY", "/var/log/nvidia-mps"
NO_DAEMON = "Cannot find MPS control daemon process"
MOST_CLIENTS = 60
LONGEST_LINE = 4096
COMMAND_TIMEOUT_S = 30.0
FULL = 100.0


class Client:
    """A process that has a context, or waits for one."""

    def __init__(self, connection: socket.socket, pid: int, uid: int, number: int) -> None:
        self.connection = connection
        self.pid = pid
        self.uid = uid
        self.number = number
        self.threads: float | None = None
        self.memory_mib: int | None = None
        self.server: Server | None = None


class Server:
    """The process in place of ``nvidia-cuda-mps-server``, and the limits that it gives to new clients."""

    def __init__(self, pid: int, uid: int, threads: float, memory_mib: dict[int, int]) -> None:
        """``memory_mib``: the limits by device, where it is limited."""
        self.pid = pid
        self.uid = uid
        self.threads = threads
        self.memory_mib = memory_mib


class Refusal(Exception):  # noqa: N818 - an answer, not a failure of ours
    """A command that is not carried out; the text is the answer."""


class Daemon:
    """The control daemon of one pipe folder.

    One thread runs the select loop and writes every field; a signal only wakes the loop. ``_clients`` holds connected
    and waiting clients alike; there is at most one ``_server``, and all clients that it serves are of its user.
    """

    def __init__(self, pipe: Path, log: Path, *, multi_user: bool) -> None:
        self._pipe = pipe
        self._log_file = (log / "control.log").open("a", buffering=1)
        self._server_log = log / "server.log"
        self._multi_user = multi_user
        self._device = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        self._selector = selectors.DefaultSelector()
        self._listener = _listen(pipe / "control", 0o666)
        self._privileged = _listen(pipe / "control_privileged", 0o700)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._privileged, selectors.EVENT_READ)
        # A signal's handler alone does not end a select.
        woken, wake = socket.socketpair()
        wake.setblocking(False)
        signal.set_wakeup_fd(wake.fileno())
        self._woken, self._wake = woken, wake
        self._selector.register(woken, selectors.EVENT_READ)
        self._fifo = _fifo(pipe / "log")
        (pipe / "nvidia-cuda-mps-control.pid").write_text(f"{os.getpid()}")
        self._buffers: dict[socket.socket, bytes] = {}
        self._clients: dict[socket.socket, Client] = {}
        self._server: Server | None = None
        self._threads = FULL
        self._memory_mib: dict[int, int] = {}
        self._started = 0
        self._quit_at: float | None = None
        """The time at which the daemon ends even with clients; infinite: it waits for them."""
        self.log(f"Starting control daemon using socket {pipe}/control")
        self.log(f"To connect CUDA applications to this daemon, set env {PIPE_ENV}={pipe}")

    def log(self, text: str) -> None:
        now = time.time()
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
        line = f"[{stamp}.{int(now * 1000) % 1000:03d} Control {os.getpid():5d}] {text}\n"
        self._log_file.write(line)
        if not sys.stderr.closed:
            sys.stderr.write(line)

    def run(self) -> None:
        while self._quit_at is None or (self._clients and time.monotonic() < self._quit_at):
            wait_s = 1.0 if self._quit_at is not None else None
            for key, _ in self._selector.select(wait_s):
                peer = key.fileobj
                assert isinstance(peer, socket.socket)
                if peer is self._woken:
                    peer.recv(64)
                elif peer in (self._listener, self._privileged):
                    self._accept(peer)
                else:
                    self._receive(peer)
        self._end_server()
        self.log("Exit")
        for name in ("control", "control_privileged", "log", "nvidia-cuda-mps-control.pid"):
            (self._pipe / name).unlink(missing_ok=True)

    # Connections.

    def _accept(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        self._buffers[connection] = b""
        self._selector.register(connection, selectors.EVENT_READ)
        self.log("Accepting connection...")

    def _receive(self, peer: socket.socket) -> None:
        try:
            data = peer.recv(LONGEST_LINE)
        except OSError:
            data = b""
        line, mark, _ = (self._buffers[peer] + data).partition(b"\n")
        if not data or len(line) > LONGEST_LINE:
            self._drop(peer)
        elif not mark:
            self._buffers[peer] = line
        else:
            self._buffers[peer] = b""
            self._line(peer, line.decode(errors="replace"))

    def _drop(self, peer: socket.socket) -> None:
        self._selector.unregister(peer)
        del self._buffers[peer]
        gone = self._clients.pop(peer, None)
        peer.close()
        if gone is not None:
            self.log(f"Client {gone.pid} from user {gone.uid} disconnected")
            self._serve_waiting()

    def _line(self, peer: socket.socket, line: str) -> None:
        word, _, rest = line.partition(" ")
        if word == "client":
            self._client(peer, rest)
            return
        self.log("User did not send valid credentials")
        try:
            answer = self.command(rest)
        except Refusal as refused:
            answer = str(refused)
        with contextlib.suppress(OSError):
            peer.sendall(json.dumps(answer).encode() + b"\n")
        self._drop(peer)

    # Clients and the server.

    def _client(self, peer: socket.socket, request: str) -> None:
        pid, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        self._started += 1
        client = Client(peer, pid, 0 if self._multi_user else uid, self._started)
        try:
            wanted = json.loads(request)
            client.threads, client.memory_mib = wanted["threads"], wanted["memoryMib"]
        except (ValueError, KeyError, TypeError):
            self._drop(peer)
            return
        self._clients[peer] = client
        if self._server is None or self._server.uid != client.uid:
            self.log(f"NEW CLIENT {pid} from user {uid}: Server is not ready, push client to pending list")
        self._serve_waiting()

    def _serve_waiting(self) -> None:
        """Connect waiting clients in order of arrival, as long as they are of the server's user."""
        for client in sorted(self._clients.values(), key=lambda other: other.number):
            if client.server is not None:
                continue
            busy = [other for other in self._clients.values() if other.server is not None]
            if self._server is not None and self._server.uid != client.uid:
                if busy:
                    return
                self._end_server()
            if self._server is None:
                self._start_server(client.uid)
            self._connect(client, len(busy))

    def _connect(self, client: Client, connected: int) -> None:
        server = self._server
        assert server is not None
        if connected >= MOST_CLIENTS:
            self.log(f"MPS Server: connection limit reached, client {client.pid} is refused")
            _send(client.connection, {"error": "too many clients"})
            return
        client.server = server
        threads = min(server.threads, client.threads or FULL)
        limits = [limit_mib for limit_mib in (server.memory_mib.get(0), client.memory_mib) if limit_mib is not None]
        self.log(f"NEW CLIENT {client.pid} from user {client.uid}: Server already exists")
        _send(
            client.connection,
            {
                "server": server.pid,
                "threads": threads,
                "memoryMib": min(limits, default=None),
                "device": self._device,
            },
        )

    def _start_server(self, uid: int) -> None:
        """Start a process that ends with the daemon: it waits for the end of a pipe that only the daemon holds open."""
        self.log(f"Starting new server for user {uid}")
        read_end, write_end = os.pipe()
        ready, ready_write = os.pipe()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                # The child must not keep these open: the clients' connections, the lock, the end of the pipe that is to
                # close.
                os.dup2(read_end, 3)
                os.dup2(ready_write, 4)
                os.closerange(5, 1024)
                _serve_until_closed(3, 4, uid, self._server_log)
                status = 0
            finally:
                os._exit(status)
        os.close(read_end)
        os.close(ready_write)
        os.read(ready, 1)
        os.close(ready)
        self._server = Server(pid, uid, self._threads, dict(self._memory_mib))
        self._server_pipe = write_end
        self.log(f"NEW SERVER {pid}: Ready")

    def _end_server(self) -> None:
        if self._server is None:
            return
        os.close(self._server_pipe)
        with contextlib.suppress(OSError):
            os.waitpid(self._server.pid, 0)
        self.log(f"Server {self._server.pid} exited with status 0")
        self._server = None

    # Commands.

    def command(self, line: str) -> str:
        """The answer to a command line. Raises Refusal."""
        name, *words = line.split()
        commands: dict[str, Callable[[list[str]], str]] = {
            "get_server_list": lambda _: str(self._server.pid) if self._server else "",
            "get_server_status": self._server_status,
            "start_server": self._start,
            "shutdown_server": self._shutdown,
            "get_client_list": lambda words: "\n".join(str(client.pid) for client in self._connected(words)),
            "get_device_client_list": self._device_clients,
            "set_default_active_thread_percentage": self._set_default_threads,
            "get_default_active_thread_percentage": lambda _: f"{self._threads:.1f}",
            "set_active_thread_percentage": self._set_threads,
            "get_active_thread_percentage": lambda words: f"{self._named(words).threads:.1f}",
            "set_default_device_pinned_mem_limit": self._set_default_memory,
            "get_default_device_pinned_mem_limit": lambda words: self._limit(self._memory_mib, words),
            "set_device_pinned_mem_limit": self._set_memory,
            "get_device_pinned_mem_limit": lambda words: self._limit(self._named(words).memory_mib, words[1:]),
            "terminate_client": self._terminate,
            "ps": self._ps,
            "quit": self._quit,
        }
        if name == "help":
            return "\n".join(sorted(commands))
        if name not in commands:
            raise Refusal(f"Unrecognized command: {name}")
        return commands[name](words)

    def _named(self, words: list[str]) -> Server:
        if self._server is None or not words or words[0] != str(self._server.pid):
            raise Refusal(f"Server {words[0] if words else ''} not found")
        return self._server

    def _server_status(self, words: list[str]) -> str:
        self._named(words)
        return "ACTIVE"

    def _start(self, words: list[str]) -> str:
        uid = _number(words[1:2], 0, 2**31) if words[:1] == ["-uid"] else None
        if uid is None:
            raise Refusal("Usage: start_server -uid <user id>")
        if self._server is not None:
            raise Refusal("Server already exists")
        self._start_server(int(uid))
        return ""

    def _shutdown(self, words: list[str]) -> str:
        self._named(words)
        if any(other.server is not None for other in self._clients.values()) and "-f" not in words:
            raise Refusal("Server has clients")
        self._end_server()
        for client in list(self._clients.values()):
            if client.server is not None:
                self._drop(client.connection)
        return ""

    def _connected(self, words: list[str]) -> list[Client]:
        server = self._named(words)
        return [other for other in self._clients.values() if other.server is server]

    def _device_clients(self, _: list[str]) -> str:
        pids = " ".join(str(other.pid) for other in self._clients.values() if other.server is not None)
        return f"{self._device} {pids}".strip()

    def _set_default_threads(self, words: list[str]) -> str:
        self._threads = _number(words, 0, FULL)
        return ""

    def _set_threads(self, words: list[str]) -> str:
        self._named(words).threads = _number(words[1:], 0, FULL)
        return ""

    def _set_default_memory(self, words: list[str]) -> str:
        self._put(self._memory_mib, words)
        return ""

    def _set_memory(self, words: list[str]) -> str:
        self._put(self._named(words).memory_mib, words[1:])
        return ""

    def _put(self, limits: dict[int, int], words: list[str]) -> None:
        """Set a device's limit. A UUID is accepted and has no effect, as in the real daemon."""
        if words and words[0].isdigit():
            limits[self._at(words[0])] = _memory(words[1:])

    def _limit(self, limits: dict[int, int], words: list[str]) -> str:
        return _size(limits.get(self._at(words[0] if words else "0")))

    def _at(self, word: str) -> int:
        """A device's place in CUDA_VISIBLE_DEVICES."""
        if not word.isdigit() or len(word) > 4 or int(word) >= len(self._device.split(",")):  # noqa: PLR2004
            raise Refusal(f"Invalid device {word}")
        return int(word)

    def _terminate(self, words: list[str]) -> str:
        for client in self._connected(words):
            if words[1:] == [str(client.pid)]:
                self._drop(client.connection)
                return ""
        raise Refusal("Client not found")

    def _ps(self, _: list[str]) -> str:
        rows = [f"{'PID':<9} {'ID':<4} {'SERVER':<9} {'DEVICE':<18} {'NAMESPACE':<12} COMMAND"]
        rows += [
            f"{row.pid:<9} {row.number:<4} {row.server.pid:<9} {self._device[:17]:<18} {'-':<12} {_command(row.pid)}"
            for row in self._clients.values()
            if row.server is not None
        ]
        return "\n".join(rows)

    def _quit(self, words: list[str]) -> str:
        timeout_s = _number(words[1:], 0, 1e9) if words[:1] == ["-t"] else float("inf")
        self._quit_at = time.monotonic() + timeout_s
        return ""


def _serve_until_closed(read_end: int, told: int, uid: int, log: Path) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with log.open("a") as file:
        file.write(f"[Server {os.getpid()}] Startup for user {uid}\n")
    if os.geteuid() == 0 and uid != 0:
        os.setuid(uid)
    os.write(told, b"1")
    os.read(read_end, 1)


def _send(connection: socket.socket, message: dict[str, object]) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(json.dumps(message).encode() + b"\n")


def _listen(path: Path, mode: int) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    path.chmod(mode)
    listener.listen(MOST_CLIENTS)
    return listener


def _fifo(path: Path) -> Path:
    if not (path.exists() and stat.S_ISFIFO(path.stat().st_mode)):
        path.unlink(missing_ok=True)
        os.mkfifo(path, 0o666)
    return path


def _number(words: list[str], least: float, most: float) -> float:
    try:
        value = float(words[0])
    except (ValueError, IndexError):
        raise Refusal("Invalid value") from None
    if not least <= value <= most:
        raise Refusal("Invalid value")
    return value


def _memory(words: list[str]) -> int:
    found = re.fullmatch(r"(\d+)(MB?|GB?)", words[0] if words else "", re.IGNORECASE)
    if found is None:
        raise Refusal("Invalid limit")
    return int(found[1]) * (1024 if found[2][0] in "Gg" else 1)


def _size(mib: int | None) -> str:
    if mib is None:
        return ""
    return f"{mib // 1024}G" if mib % 1024 == 0 else f"{mib}M"


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()[:60]
    except OSError:
        return ""


def folder(variable: str, default: str) -> Path:
    """A folder that the environment names."""
    return Path(os.environ.get(variable) or default)


def send_command(line: str) -> str:
    """Send a command to the daemon; return its answer. Raises OSError where there is no daemon."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control:
        control.settimeout(COMMAND_TIMEOUT_S)
        control.connect(str(folder(PIPE_ENV, DEFAULT_PIPE) / "control"))
        control.sendall(f"command {line}\n".encode())
        with control.makefile() as answer:
            return str(json.loads(answer.readline() or '""'))


def _commands() -> int:
    for line in sys.stdin:
        if not line.strip():
            continue
        try:
            answer = send_command(line.strip())
        except (OSError, ValueError):
            sys.stdout.write(f"{NO_DAEMON}\n")
            return 1
        if answer:
            sys.stdout.write(f"{answer}\n")
    return 0


def _serve(words: list[str]) -> int:
    pipe, log = folder(PIPE_ENV, DEFAULT_PIPE), folder(LOG_ENV, DEFAULT_LOG)
    try:
        pipe.mkdir(parents=True, exist_ok=True)
        log.mkdir(parents=True, exist_ok=True)
        lock = (pipe / "control_lock").open("w")
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.stderr.write("An instance of this daemon is already running\n")
        return 1
    except OSError as failed:
        sys.stderr.write(f"{failed}\n")
        return 1
    with lock:
        if "-d" in words:
            ready, ready_write = os.pipe()
            if os.fork() != 0:
                os.close(ready_write)
                return 0 if os.read(ready, 1) else 1
            os.setsid()
            os.close(ready)
            sys.stderr.close()
        try:
            daemon = Daemon(pipe, log, multi_user=bool({"-M", "-multiuser-server"} & set(words)))
        except OSError as failed:
            if not sys.stderr.closed:
                sys.stderr.write(f"{failed}\n")
            return 1
        # The handler is set before anybody is told that the daemon runs, since they may end it at once.
        signal.signal(signal.SIGTERM, lambda *_: daemon.command("quit -t 0"))
        if "-d" in words:
            os.write(ready_write, b"1")
            os.close(ready_write)
        daemon.run()
    return 0


def main() -> int:
    """Run the program. Exit code 0, or 1 with one line that says why."""
    words = sys.argv[1:]
    known = {"-d", "-f", "-v", "-S", "--static-partitioning", "-M", "-multiuser-server"}
    if set(words) - known:
        sys.stderr.write("Usage: mpscontrol [-d | -f] [-S] [-M] [-v]\n")
        return 1
    if "-v" in words:
        sys.stdout.write("CUDA MPS Control (simulated)\n")
        return 0
    return _serve(words) if {"-d", "-f"} & set(words) else _commands()


if __name__ == "__main__":
    raise SystemExit(main())
