"""Faults between processes and below them: proxies, answers, certificates, webhooks, the Lease, NVML and GPUs."""

import contextlib
import signal
import socket
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from hack.chaos.api import AwayError, RefusedError
from hack.chaos.faults.kinds import RESET_GPUS
from hack.chaos.faults.nvmlcalls import CODES, NVML_CALLS, NVML_FAILURES, RESETS
from hack.chaos.faults.processes import Heal, nothing
from hack.chaos.invariants import Json
from hack.chaos.proxy import PLAIN, Mode, Proxy
from hack.chaos.schedule import Act
from hack.chaos.world import GPUS, HALVES, LAYOUT, QUARTERS, SPARE, World, signal_all
from hack.cluster import waiting
from hack.cluster.controlplane.pki import Pki
from hack.cluster.errors import ClusterError
from tests.support.e2e import queuelab
from tests.support.e2e.lab import FAST

Begin = Callable[[World, Act], Heal]
CUT_GPU: Final = 5
HANGS_S: Final = 5.0
ASKS_FOR_RESET: Final = 119
RESET_S: Final = 2.0
_WEBHOOK: Final = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
LEASES: Final = (
    {"holderIdentity": "\u202enobody" + "x" * 200, "leaseDurationSeconds": 1},
    {"holderIdentity": "", "leaseTransitions": 2147483647},
    {"holderIdentity": "one-of-the-past", "renewTime": "1970-01-01T00:00:00.000000Z", "leaseDurationSeconds": 1},
    {"holderIdentity": "one-of-the-future", "renewTime": "2200-01-01T00:00:00.000000Z", "leaseDurationSeconds": 1},
)


def to_agent(mode: Mode) -> Begin:
    return lambda world, _: _set(world.agent_api, mode)


def to_kubelet(mode: Mode) -> Begin:
    return lambda world, _: _set(world.kubelet_api, mode)


def to_leader(mode: Mode) -> Begin:
    def begin(world: World, _: Act) -> Heal:
        return _set(_proxy(world), mode)

    return begin


def _proxy(world: World) -> Proxy:
    found = world.leader.proxy
    assert found is not None
    return found


def _set(proxy: Proxy, mode: Mode) -> Heal:
    proxy.set(mode)
    return lambda: proxy.set(PLAIN)


def stall_leader(world: World, _: Act) -> Heal:
    """The leader writes, and stops before its write is out. Another leads by the time that the write arrives, and then
    the leader goes on.
    """
    leader = world.leader
    proxy = leader.proxy
    assert proxy is not None
    before = proxy.counted.held
    proxy.set(Mode(holds=True))
    with contextlib.suppress(ClusterError):  # nothing was to be written
        waiting.until(lambda: proxy.counted.held > before, "a write of the leader", timeout_s=HANGS_S)
    pids = [leader.process.pid] if leader.process else []
    signal_all(pids, signal.SIGSTOP)

    def heal() -> None:
        proxy.release()
        proxy.set(PLAIN)
        signal_all(pids, signal.SIGCONT)

    return heal


def expired_certificate(world: World, _: Act) -> Heal:
    pki = Pki(world.cluster.paths.pki)
    expire(pki, "apiserver", "expired")
    proxy = _proxy(world)
    proxy.present("expired")
    proxy.set(PLAIN)

    def heal() -> None:
        proxy.present("apiserver")
        proxy.set(PLAIN)

    return heal


def expire(pki: Pki, name: str, made: str) -> None:
    """A certificate like ``name`` that ended a minute ago, signed by the same authority, as ``made``."""
    like = x509.load_pem_x509_certificate(Path(pki.file(f"{name}.crt")).read_bytes())
    authority = serialization.load_pem_private_key(Path(pki.file("ca.key")).read_bytes(), None)
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(like.subject)
        .issuer_name(like.issuer)
        .public_key(like.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=2))
        .not_valid_after(now - timedelta(minutes=1))
    )
    for extension in like.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    assert isinstance(authority, ec.EllipticCurvePrivateKey), "the authority's key, as pki makes it"
    signed = builder.sign(authority, hashes.SHA256())
    Path(pki.file(f"{made}.crt")).write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    Path(pki.file(f"{made}.key")).write_bytes(Path(pki.file(f"{name}.key")).read_bytes())


def webhook_timeout(world: World, _: Act) -> Heal:
    """A webhook of somebody else's for each write of a Workload, whose server takes the connection and says nothing."""
    silent = socket.create_server(("127.0.0.1", 0))
    port = silent.getsockname()[1]
    rules = [
        {"apiGroups": ["kueue.x-k8s.io"], "apiVersions": ["*"], "operations": ["*"], "resources": ["workloads/*"]},
        {"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["jobs"]},
    ]
    hook = {
        "name": "silent.chaos.example.com",
        "clientConfig": {"url": f"https://127.0.0.1:{port}/"},
        "rules": rules,
        "timeoutSeconds": 1,
        "failurePolicy": "Ignore",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    with contextlib.suppress(AwayError, RefusedError):
        world.api.call("POST", _WEBHOOK, {**kind, "metadata": {"name": "chaos"}, "webhooks": [hook]})

    def heal() -> None:
        silent.close()
        world.api.delete(f"{_WEBHOOK}/chaos")

    return heal


def corrupt_lease(world: World, act: Act) -> Heal:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{queuelab.NAMESPACE}/leases"
    spec: Json = act.chosen(LEASES)
    with contextlib.suppress(AwayError, RefusedError):
        for lease in world.api.items(path):
            world.api.patch(f"{path}/{lease['metadata']['name']}", {"spec": spec})
    return nothing


def nvml_hangs(world: World, act: Act) -> Heal:
    call = act.chosen(NVML_CALLS)
    world.order(slow={"call": call, "seconds": HANGS_S})
    return lambda: world.order_at_last(slow={"call": call, "seconds": 0})


def nvml_call_fails(world: World, act: Act) -> Heal:
    call, error = act.chosen(NVML_FAILURES)
    world.order(fail={"call": call, "code": CODES[error]})

    def heal() -> None:
        world.order_at_last(fail={"call": call, "code": 0})
        for gpu in range(GPUS if error in RESETS else 0):
            world.order_at_last(gpu=gpu, reset=True)

    return heal


def nvml_fails(world: World, _: Act) -> Heal:
    world.order(driver="down")
    return lambda: world.order_at_last(driver="up")


def gpu_lost(world: World, _: Act) -> Heal:
    world.order(gpu=SPARE, lost=True)
    return lambda: world.order_at_last(gpu=SPARE, reset=True)


def gpu_wants_reset(world: World, act: Act) -> Heal:
    """Agent and controller are left to it until the end; then a person resets what they could not."""
    gpu = act.chosen(RESET_GPUS)
    world.order(gpu=gpu, slow={"call": "reset", "seconds": RESET_S})
    world.order(gpu=gpu, xid=ASKS_FOR_RESET)

    def heal() -> None:
        world.order_at_last(gpu=gpu, slow={"call": "reset", "seconds": 0})
        world.order_at_last(gpu=gpu, reset=True)

    return heal


def gpu_lost_in_mig_change(world: World, _: Act) -> Heal:
    """The layout asks for another cut of a GPU, and the GPU goes while that is made. The end asks for the first."""
    world.agent.reload(LAYOUT % (FAST, QUARTERS))
    world.order(gpu=CUT_GPU, lost=True)

    def heal() -> None:
        world.order_at_last(gpu=CUT_GPU, reset=True)
        world.agent.reload(LAYOUT % (FAST, HALVES))

    return heal
