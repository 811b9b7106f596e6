"""The answer of each path of the webhooks, by the configuration: pure functions of bytes, put together."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from controller.cluster.config.settings import ControllerConfig
from controller.cluster.webhooks import foreign, fractions, jobs, pods, serving
from controller.cluster.webhooks.apart.server_shell import Answer, AskingAnswer, Ready, WebhookServer
from controller.cluster.webhooks.jobs import HasDefaultQueue, SuspendPaths
from controller.jobs.framework.kind import JobKind
from controller.jobs.framework.raw import Json
from controller.jobs.kinds.table import JOB_KINDS
from controller.scheduler.mirror.specs import System
from controller.scheduler.model.gates import FeatureGates

ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - the API server comes from another machine


def webhook_server(
    config: ControllerConfig,
    suspend_paths: SuspendPaths,
    *,
    has_default_queue: HasDefaultQueue,
    asking: Mapping[str, AskingAnswer] | None = None,
    ready: Ready | None = None,
) -> WebhookServer:
    """The server of all webhooks. ``suspend_paths`` is read at each request."""
    everything = config.manage_jobs_without_queue_name
    answer = partial(
        jobs.answer,
        has_default_queue=has_default_queue,
        manage_without_queue_name=everything,
        suspend_paths=suspend_paths,
        defaults={(kind.group, kind.kind): _defaulted(kind, config.engine.gates) for kind in JOB_KINDS},
    )
    return WebhookServer(
        host=config.webhook.host or ANY_ADDRESS,
        port=config.webhook.port,
        client_ca=config.webhook.client_ca,
        mutate={
            "/mutate-job": answer,
            "/mutate-pod": partial(pods.answer, manage_without_queue_name=everything),
            "/mutate-serving": partial(
                serving.answer,
                has_default_queue=has_default_queue,
                manage_without_queue_name=everything,
                gates=config.engine.gates,
            ),
            **_foreign(config, suspend_paths),
            fractions.PATH: partial(fractions.answer, fleet=config.fractions),
        },
        asking=asking,
        ready=ready or (lambda: True),
    )


def _defaulted(kind: JobKind, gates: FeatureGates) -> Callable[[Json], Json]:
    return lambda job: kind.defaulted(job, gates)


def _foreign(config: ControllerConfig, suspend_paths: SuspendPaths) -> dict[str, Answer]:
    """Answers about foreign objects, by path. The webhooks' configuration says whether they are called."""
    answers: dict[str, Answer] = {}
    for system in System:
        switch = config.switch(system)
        answers[foreign.queue_path(system)] = partial(
            foreign.queue_answer, switch=switch, schedulers=config.schedulers, suspend_paths=suspend_paths
        )
        answers[foreign.scheduler_path(system)] = partial(foreign.scheduler_answer, switch=switch)
    answers[foreign.GANG_PATH] = partial(foreign.gang_answer, switch=config.serving_gangs, schedulers=config.schedulers)
    answers[foreign.DEFAULTS_PATH] = foreign.defaults_answer
    return answers
