"""The webhook of this replica, from the configuration: conversion of v1beta1, suspension of Jobs, gates of pods."""

import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from controller.config.settings import ControllerConfig
from controller.engine.mirror.specs import System
from controller.jobkinds.table import JOB_KINDS
from controller.objects.core import Pod
from controller.watching.feeds import Feeds
from controller.watching.kinds import LOCAL_QUEUES, PODS
from controller.webhooks import foreign, fractions, jobs, pods, serving
from controller.webhooks.claims_shell import ClaimAnswers
from controller.webhooks.injection import MUTATING, VALIDATING, ServiceTarget
from controller.webhooks.jobs import HasDefaultQueue, SuspendPaths
from controller.webhooks.keeper import GivenCertificates, OwnCertificates, SecretName
from controller.webhooks.server import Answer, AskingAnswer, WebhookServer
from controller.webhooks.service import WebhookService, service_names
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
    feeds: Feeds,
    suspend_paths: SuspendPaths,
    *,
    namespace: str,
    clock: Clock,
    may_take_over: Callable[[], bool],
    asking: Mapping[str, AskingAnswer],
) -> WebhookService:
    """``suspend_paths`` is read at each request. ``namespace``: where the Service and its Secret are.
    ``may_take_over``: no live Kueue is there. ``asking``: by path, answers that ask elsewhere first.
    """
    certificates = config.certificates
    service = certificates.service_name or SERVICE
    secret = SecretName(namespace, certificates.secret_name or service)
    names = service_names(namespace, service)

    def has_default_queue(where: str) -> bool:
        return feeds[LOCAL_QUEUES].get(ObjectKey(where, jobs.DEFAULT_QUEUE)) is not None

    server = webhook_server(config, suspend_paths, has_default_queue=has_default_queue, asking=asking)
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
        may_take_over=may_take_over,
        configurations=(
            *((MUTATING, f"{name}-{each}") for each in (*ALWAYS, *pods_too, *serving_too, *foreign_too)),
            (VALIDATING, f"{name}-forecast"),
        ),
    )


def claim_answer(client: Client, feeds: Feeds) -> AskingAnswer:
    """``client``: of its own, so that a stranger's reviews hold up no write."""

    def seen(where: str, pod: str) -> Pod | None:
        entry = feeds[PODS].get(ObjectKey(where, pod)) if PODS in feeds else None
        return None if entry is None else entry.object

    return ClaimAnswers(client, seen).answer


def release(config: ControllerConfig) -> str:
    """What the chart calls the controller's objects: its Service, and what others are named after."""
    return (config.certificates.service_name or SERVICE).removesuffix(_CONFIGURATION)


def webhook_server(
    config: ControllerConfig,
    suspend_paths: SuspendPaths,
    *,
    has_default_queue: HasDefaultQueue,
    asking: Mapping[str, AskingAnswer] | None = None,
) -> WebhookServer:
    """It answers by the configuration. ``suspend_paths`` is read at each request."""
    everything = config.manage_jobs_without_queue_name
    answer = partial(
        jobs.answer,
        has_default_queue=has_default_queue,
        manage_without_queue_name=everything,
        suspend_paths=suspend_paths,
        defaults={(kind.group, kind.kind): kind.defaulted for kind in JOB_KINDS},
    )
    return WebhookServer(
        host=config.webhook.host or "0.0.0.0",  # noqa: S104 - the API server comes from another machine
        port=config.webhook.port,
        mutate_job=answer,
        mutate_pod=partial(pods.answer, manage_without_queue_name=everything),
        mutate_serving=partial(
            serving.answer, has_default_queue=has_default_queue, manage_without_queue_name=everything
        ),
        mutate={
            **_foreign(config, suspend_paths),
            fractions.PATH: partial(fractions.answer, fleet=config.fractions),
        },
        asking=asking,
    )


def _foreign(config: ControllerConfig, suspend_paths: SuspendPaths) -> dict[str, Answer]:
    """Answers about what is Volcano's and KAI's, by path. Whether they are asked, the webhooks' configuration says."""
    found: dict[str, Answer] = {}
    for system in System:
        switch = config.switch(system)
        found[foreign.queue_path(system)] = partial(
            foreign.queue_answer, switch=switch, schedulers=config.schedulers, suspend_paths=suspend_paths
        )
        found[foreign.scheduler_path(system)] = partial(foreign.scheduler_answer, switch=switch)
    found[foreign.GANG_PATH] = partial(
        foreign.gang_answer, switch=config.switch(System.VOLCANO), schedulers=config.schedulers
    )
    found[foreign.DEFAULTS_PATH] = foreign.defaults_answer
    return found
