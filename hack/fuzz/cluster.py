"""Targets of the controller: its configuration, API objects, reviews for webhooks, requests to the page."""

from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import msgspec

from hack.fuzz.clusterseeds import (
    ANNOTATIONS,
    GPU_NODE,
    PROXY,
    QUOTA,
    REVIEW,
    as_reviews,
    conversions,
    pods_and_jobs,
    read_here,
    requests,
)
from hack.fuzz.common import Made, as_json, files, manifests
from hack.fuzz.target import Shape, Target


def _config() -> Made:
    from controller.cluster.config.load import parse
    from yamlfile import ConfigError

    return lambda data: parse(data.decode(errors="replace")), (ConfigError,)


def _quantity() -> Made:
    from controller.objects.quantity import QuantityError, parse_quantity

    def parse(data: bytes) -> object:
        quantity = parse_quantity(data.decode(errors="replace"))
        again = parse_quantity(str(quantity))
        # A binary amount is held at int64 as it is read, a decimal one is not: it may be written in another form.
        assert again == quantity, f"{quantity!r} is written as {again!r}"
        return quantity.value

    return parse, (QuantityError,)


def _object() -> Made:
    from controller.foreign.objects import KINDS
    from controller.objects.decode import DecodeError, decode_object
    from controller.objects.meta import to_json

    def parse(data: bytes) -> object:
        found = decode_object(data, KINDS)
        return decode_object({**to_json(found), "apiVersion": found.api_version, "kind": found.kind}, KINDS)

    return parse, (DecodeError,)


def _gpu_node() -> Made:
    from controller.objects.decode import DecodeError, read_gpu_node

    return read_gpu_node, (DecodeError,)


def _job_kind() -> Made:
    from controller.jobs.kinds.declared.spec import JobKindError, read

    def parse(data: bytes) -> object:
        found = msgspec.json.decode(data)
        return read(found) if isinstance(found, dict) else None

    return parse, (JobKindError, msgspec.MsgspecError, RecursionError, UnicodeError)


def _selector() -> Made:
    from controller.scheduler.dra.claims.cel import ByDomain, CelSyntaxError, Selector

    attributes = ByDomain({"gpu.nvidia.com": {"type": "gpu", "index": 3, "cudaComputeCapability": True}})
    device: dict[str, Any] = {"driver": "gpu.nvidia.com", "attributes": attributes, "capacity": ByDomain()}

    def parse(data: bytes) -> object:
        return Selector(data.decode(errors="replace")).matches(device)

    return parse, (CelSyntaxError,)


def _manifest() -> Made:
    from controller.foreign.jobs.kind import ForeignJobKind
    from controller.insight.forecast.submitted import Others
    from controller.jobs.framework.settings import JobSettings
    from controller.jobs.kinds.table import JOB_KINDS
    from controller.objects.decode import decode_object
    from controller.people.whatif.manifest import Composer
    from controller.people.whatif.quotas import WrongChangeError
    from controller.scheduler.mirror.specs import ADOPTED, System

    others = Others({System.VOLCANO: ADOPTED, System.KAI: ADOPTED})
    composer = Composer(kinds=(*JOB_KINDS, ForeignJobKind()), settings=JobSettings(), facts={}, others=others)
    cluster = [
        decode_object({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}),
        decode_object(
            {
                "apiVersion": "kueue.x-k8s.io/v1beta2",
                "kind": "LocalQueue",
                "metadata": {"namespace": "team", "name": "default"},
                "spec": {"clusterQueue": "all"},
            }
        ),
    ]

    def parse(data: bytes) -> object:
        return composer.composed(data.decode(errors="replace"), "team", cluster, 1.7e9)

    return parse, (WrongChangeError,)


def _reviews(paths: str) -> Callable[[], Made]:
    def make() -> Made:
        from controller.cluster.config.load import default
        from controller.cluster.webhooks import claims, dryrun
        from controller.cluster.webhooks.apart.answers import webhook_server
        from controller.objects import conversion

        if paths == "convert":
            return conversion.answer, ()
        if paths == "claim":
            plan = '{"gpu":{"main":{"gpu.nvidia.com/uuid":["GPU-1"]}}}'
            return lambda body: (_owned(claims.owner, body), claims.answer(body, plan)), ()
        if paths == "dry-run":
            return dryrun.read, ()
        server = webhook_server(default(), {}, has_default_queue=lambda _namespace: True)
        answers = {path: answer for path, answer in server.mutate.items() if paths in path}

        def parse(body: bytes) -> object:
            found = [msgspec.json.decode(answer(body)) for answer in answers.values()]
            assert all(each["kind"] == "AdmissionReview" for each in found), "an answer is no review"
            return found

        return parse, ()

    return make


def _owned(owner: Callable[[bytes], object], body: bytes) -> object:
    from controller.objects.conversion.tree import ConversionError

    try:
        return owner(body)
    except ConversionError:
        return None


def _asked() -> Made:
    from controller.people.visibility.routes import BadRequestError, created, manifest_of, parsed

    def parse(data: bytes) -> object:
        line, _, body = data.decode(errors="replace").partition("\n")
        try:
            url = urlsplit(line)
            query = dict(parse_qsl(url.query))
        except ValueError:
            return None  # aiohttp refuses it
        return parsed(url.path, query, frozenset({"/apis"})), created(url.path), manifest_of(body.encode())

    return parse, (BadRequestError,)


def _what_if() -> Made:
    from controller.people.whatif.question import read
    from controller.people.whatif.quotas import WrongChangeError

    return read, (WrongChangeError,)


def _cookie() -> Made:
    from controller.people.page.session import Seal

    seal = Seal(b"secret", "session")

    def parse(data: bytes) -> object:
        text = data.decode(errors="replace")
        assert seal.session(text, 0.0) is None, "a cookie opens that was never sealed"
        return seal.signing_in(text, 0.0)

    return parse, ()


def _mark() -> Made:
    from controller.people.page.frames import read_mark

    return lambda data: read_mark(data.decode(errors="replace"), "1.a"), ()


def _identity() -> Made:
    from controller.people.visibility.identity import front_proxy, reviewed

    def parse(data: bytes) -> object:
        found = msgspec.json.decode(data)
        told = found if isinstance(found, dict) else {}
        return reviewed(found), front_proxy({key: value for key, value in told.items() if isinstance(value, str)})

    return parse, (msgspec.MsgspecError, RecursionError, UnicodeError)


def _annotations() -> Made:
    from controller.foreign.jobs.placement import placement
    from controller.scheduler.model.gangshape import GangShapeError, gang_shape, patience_s
    from controller.scheduler.quota.capacity import QuotaShareError, shares_of

    def parse(data: bytes) -> object:
        found = msgspec.json.decode(data, type=dict[str, str])
        return gang_shape(found), patience_s(found), shares_of(found), placement({"metadata": {"annotations": found}})

    return parse, (msgspec.MsgspecError, RecursionError, UnicodeError, GangShapeError, QuotaShareError)


def _in_cluster(
    name: str,
    what: str,
    writer: str,
    make: Callable[[], Made],
    seeds: Callable[[], Sequence[bytes]],
    shape: Shape = Shape.JSON,
    each_line: str = "",
) -> Target:
    return Target(name=name, what=what, writer=writer, make=make, seeds=seeds, shape=shape, each_line=each_line)


_ANYBODY: Final = "anybody who makes such objects"
TARGETS: Final = (
    _in_cluster(
        "controller-config",
        "the controller's configuration",
        "administrators",
        _config,
        files("configs/controller/*.yaml"),
        Shape.TEXT,
    ),
    _in_cluster(
        "quantity", "quantities", _ANYBODY, _quantity, lambda: [b"100m", b"1.5Gi", b"2e3", b"4", b"-1n"], Shape.TEXT
    ),
    _in_cluster("object", "API objects of every kind that is decoded", _ANYBODY, _object, read_here),
    _in_cluster("gpu-node", "GpuNode objects", "agents", _gpu_node, lambda: as_json((GPU_NODE,))),
    _in_cluster(
        "job-kind",
        "JobKind objects",
        "administrators",
        _job_kind,
        lambda: as_json(manifests("jobkinds/sweeps.yaml")),
    ),
    _in_cluster(
        "selector",
        "CEL selectors of device classes and claims",
        "anybody who makes claims",
        _selector,
        lambda: [
            b"device.attributes['gpu.nvidia.com'].type == 'gpu' && device.driver in ['a', \"b\"]",
            b"[1,2].exists(x, x > 1)",
        ],
        Shape.TEXT,
    ),
    _in_cluster(
        "manifest",
        "manifests to forecast, of all kinds of jobs",
        "people who are signed in",
        _manifest,
        pods_and_jobs,
        each_line="manifest",
    ),
    _in_cluster("webhook-job", "reviews of jobs", _ANYBODY, _reviews("/mutate-job"), as_reviews),
    _in_cluster("webhook-pod", "reviews of pods", _ANYBODY, _reviews("/mutate-pod"), as_reviews),
    _in_cluster("webhook-serving", "reviews of what serves", _ANYBODY, _reviews("/mutate-serving"), as_reviews),
    _in_cluster("webhook-fractions", "reviews of parts of GPUs", _ANYBODY, _reviews("/mutate-fractions"), as_reviews),
    _in_cluster("webhook-kai", "reviews of what is KAI's", _ANYBODY, _reviews("/mutate-kai"), as_reviews),
    _in_cluster("webhook-volcano", "reviews of what is Volcano's", _ANYBODY, _reviews("/mutate-volcano"), as_reviews),
    _in_cluster("webhook-claim", "reviews of claims", _ANYBODY, _reviews("claim"), as_reviews),
    _in_cluster("webhook-dry-run", "reviews of dry runs", _ANYBODY, _reviews("dry-run"), as_reviews),
    _in_cluster("conversion", "reviews for conversion", _ANYBODY, _reviews("convert"), conversions),
    _in_cluster(
        "view-request",
        "requests for queues and workloads",
        "anybody who reaches the port",
        _asked,
        requests,
        Shape.TEXT,
    ),
    _in_cluster(
        "what-if",
        "questions of the page",
        "people who are signed in",
        _what_if,
        lambda: as_json(({"manifest": "kind: Job", "namespace": "team"}, {"quotas": [QUOTA]})),
    ),
    _in_cluster(
        "cookie",
        "cookies of the page",
        "anybody who reaches the port",
        _cookie,
        lambda: [b"AAAA", b"A" * 200],
        Shape.TEXT,
    ),
    _in_cluster(
        "page-mark",
        "marks of what a page has",
        "anybody who reaches the port",
        _mark,
        lambda: [b"1.a.fleet=3,queues=5"],
        Shape.TEXT,
    ),
    _in_cluster(
        "identity", "answers about a person's token", "the API server", _identity, lambda: as_json((REVIEW, PROXY))
    ),
    _in_cluster(
        "annotations",
        "annotations of gangs, quotas and placements",
        _ANYBODY,
        _annotations,
        lambda: as_json((ANNOTATIONS,)),
    ),
)
