"""The webhooks of this replica, from the configuration: conversion of v1beta1, suspension of Jobs, gates of pods."""

import random
from collections.abc import Callable
from typing import Final

import msgspec

from controller.cluster.config.settings import ControllerConfig
from controller.cluster.watching.feeds import Feeds
from controller.cluster.watching.kinds import DECLARATIONS, LOCAL_QUEUES, PODS
from controller.cluster.webhooks import jobs
from controller.cluster.webhooks.apart.messages import Known
from controller.cluster.webhooks.apart.parent_shell import Answered, ServingProcess
from controller.cluster.webhooks.claims import OwnerPod
from controller.cluster.webhooks.claims_shell import ClaimAnswers
from controller.cluster.webhooks.injection import MUTATING, VALIDATING, ServiceTarget
from controller.cluster.webhooks.jobs import SuspendPaths
from controller.cluster.webhooks.keeper import GivenCertificates, OwnCertificates, SecretName
from controller.cluster.webhooks.service import WebhookService, service_names
from controller.objects.core import Pod
from kube.client import Client
from kube.clock import Backoff, Clock
from kube.reading.entries import ObjectKey

SERVICE: Final = "tessera-controller-webhook"
"""The chart's Service in a release called tessera, and its Secret; the configuration names others."""
_CONFIGURATION: Final = "-webhook"
ALWAYS: Final = ("job-suspend", "fractions", "claims")
"""Configurations that are written wherever they are installed."""


def webhook_service(
    config: ControllerConfig,
    client: Client,
    server: ServingProcess,
    *,
    namespace: str,
    clock: Clock,
    leading: Callable[[], bool],
) -> WebhookService:
    """The webhooks of this replica. ``namespace``: where the Service and its Secret are. ``leading``: neither a live
    Kueue nor another replica is.
    """
    certificates = config.certificates
    service = certificates.service_name or SERVICE
    secret = SecretName(namespace, certificates.secret_name or service)
    names = service_names(namespace, service)
    name = release(config)
    pods_too = ("pod-gate",) if config.integrations.queue_pods else ()
    serving_too = ("serving-queue",) if config.integrations.serving_kinds else ()
    foreign_too = ("foreign",) if any(each.enabled is not False for each in config.foreign.values()) else ()
    return WebhookService(
        client,
        server,
        OwnCertificates(client, secret, names=names, clock=clock)
        if certificates.internal
        else GivenCertificates(client, secret),
        ServiceTarget(namespace, service),
        clock=clock,
        backoff=Backoff(random=random.random),
        leading=leading,
        serve_old_workloads=config.serve_old_workloads,
        configurations=(
            *((MUTATING, f"{name}-{each}") for each in (*ALWAYS, *pods_too, *serving_too, *foreign_too)),
            (VALIDATING, f"{name}-forecast"),
        ),
    )


class KnownHere:
    """What the process that serves webhooks must know: a call returns the newest, None until all of it is listed."""

    def __init__(self, feeds: Feeds, suspend_paths: SuspendPaths) -> None:
        self._feeds = feeds
        self._suspend_paths = suspend_paths
        self._default_queues: frozenset[str] | None = None
        """Namespaces with a default queue; None if they are to be gathered again."""
        self._listed = False
        feeds.note(LOCAL_QUEUES, self._hear)

    def _hear(self) -> None:
        self._default_queues = None

    def __call__(self) -> Known | None:
        if not self._listed:
            self._listed = not {LOCAL_QUEUES.plural, DECLARATIONS.plural} & set(self._feeds.unsynced)
            if not self._listed:
                return None
        if self._default_queues is None:
            named = (key.namespace for key in self._feeds[LOCAL_QUEUES] if key.name == jobs.DEFAULT_QUEUE)
            self._default_queues = frozenset(named)
        paths = tuple(sorted((group, kind, path) for (group, kind), path in self._suspend_paths.items()))
        return Known(self._default_queues, paths)


def claim_answer(client: Client, feeds: Feeds) -> Answered:
    """Answers questions about claims. ``client``: a client of its own, so that a stranger's reviews delay no write."""

    def seen(where: str, pod: str) -> Pod | None:
        entry = feeds[PODS].get(ObjectKey(where, pod)) if PODS in feeds else None
        return None if entry is None else entry.object

    answers = ClaimAnswers(client, seen)

    async def planned(question: bytes) -> bytes:
        return (await answers.planned(msgspec.msgpack.decode(question, type=OwnerPod))).encode()

    return planned


def release(config: ControllerConfig) -> str:
    """The name by which the chart calls the controller's objects: its Service, and what is named after it."""
    return (config.certificates.service_name or SERVICE).removesuffix(_CONFIGURATION)
