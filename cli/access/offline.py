"""Gives the controller's answers without the controller: its engine runs here, loaded with the API server's objects.

Numbers and sentences are those that the controller would give from the same objects. State that only the controller has
(stories, reservations of backfill and of preemptors) is missing.
"""

import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import click

from cli.access.cluster import Where, named_config
from cli.manifests import WrongInputError
from cli.printing.console import Json
from controller.cluster.config.load import default, load, parse
from controller.cluster.config.settings import ControllerConfig, ForeignSystem
from controller.cluster.watching.feeds import ORDER
from controller.cluster.watching.kinds import (
    CLAIM_KINDS,
    CLUSTER_QUEUES,
    FOREIGN_QUEUES,
    LOCAL_QUEUES,
    QUEUES_OF,
    TYPES,
    WORKLOADS,
    claim_readers,
    reader,
)
from controller.insight.explain import explained, in_turn, queue_shown, waiting_row
from controller.insight.forecast.changes.changes import changes
from controller.insight.forecast.forecast import Forecaster, Forecasts
from controller.insight.forecast.shown import AHEAD_SHOWN, brief, shown
from controller.objects.core import Node
from controller.objects.decode import DecodeError
from controller.objects.workload import Workload
from controller.reconcile.lifecycle.pendingcause import why
from controller.scheduler.engine import Engine
from controller.scheduler.model.resources import ClusterQueueName, WorkloadKey
from kube.client import Client
from kube.errors import ForbiddenError, NotFoundError
from kube.resources import NODES, Resource
from yamlfile import ConfigError

_NEEDED = (CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS)


Change = Callable[[ControllerConfig], ControllerConfig]


def _as_it_is(config: ControllerConfig) -> ControllerConfig:
    return config


class Offline:
    """The engine with the cluster's objects. ``notes`` are the objects that could not be read, one line each."""

    def __init__(self, config: ControllerConfig, notes: list[str]) -> None:
        self.engine = Engine(config.engine)
        self.notes = notes
        self.now_s = time.time()
        self._forecaster = Forecaster()
        self._forecasts: Forecasts | None = None

    @classmethod
    async def load(cls, client: Client, where: Where, change: Change = _as_it_is) -> "Offline":
        """Read the cluster. Raises KubeError where queues or workloads cannot be listed, click.ClickException for a
        wrong --config.
        """
        notes: list[str] = []
        config = change(await _config(client, where, notes))
        made = cls(config, notes)
        for switch in config.foreign.values():
            if switch.enabled is not False:
                await made._read_queues(client, switch)
        kinds: list[tuple[Resource, type[Any]]] = [
            (resource, TYPES[resource]) for resource in ORDER if resource in TYPES
        ]
        if made.engine.shares is not None or made.engine.mirror:
            kinds.insert(0, (NODES, Node))
        for resource, type_ in kinds:
            await made._read(client, resource, type_)
        for resource in claim_readers(config.engine.claim_rules):
            await made._read(client, resource, CLAIM_KINDS[resource], told=False)
        return made

    async def _read_queues(self, client: Client, switch: ForeignSystem) -> None:
        """Read a foreign system's Queues, where they are served. It does not matter whether that system decides now."""
        resource = QUEUES_OF[switch.system]
        if await self._read(client, resource, FOREIGN_QUEUES[resource], told=False):
            self.engine.imply(switch.system, self.now_s, switch.adoption)

    async def _read(self, client: Client, resource: Resource, type_: type[Any], *, told: bool = True) -> bool:
        """Read the kind. False where it could not be read; a note says so if ``told``."""
        read = reader(type_)

        def decode(raw: bytes) -> Any:
            try:
                return read(raw)
            except DecodeError as error:
                self.notes.append(f"passed over: {error}")
                return None

        try:
            listed = await client.list_decoded(resource, decode)
        except (NotFoundError, ForbiddenError) as failed:
            if resource in _NEEDED:
                raise
            if told:
                self.notes.append(f"{resource.plural} are not read: {failed}")
            return False
        for item in listed.items:
            if item is not None:
                self.engine.put(item, self.now_s)
                if isinstance(item, Workload):
                    self._forecaster.observe(item)
        return True

    def forecasts(self) -> Forecasts:
        """The forecasts for the present Workloads; what a controller has learnt from past forecasts is missing."""
        if self._forecasts is None:
            self._forecasts = self._forecaster.all(self.engine, self.now_s)
        return self._forecasts

    def queues(self) -> list[Json]:
        states = self.engine.state.cluster.queues
        return [queue_shown(self.engine, states[name]) for name in sorted(states)]

    def pending(self, name: str, *, limit: int | None = None) -> list[Json] | None:
        """The pending workloads of a ClusterQueue; None where it does not exist. The reasons come from a try made for
        this call.
        """
        queue = ClusterQueueName(name)
        if queue not in self.engine.state.cluster.queues:
            return None
        rows = [waiting_row(self.engine, turn) for turn in islice(in_turn(self.engine, queue), limit)]
        for entry in rows:
            told = why(self.engine, self.engine.state.workloads.objects[WorkloadKey(entry["workload"])], self.now_s)
            entry["reason"], entry["sentence"] = str(told.reason), told.message
            entry["forecast"] = brief(self.forecasts().get(WorkloadKey(entry["workload"])))
        return rows

    def explain(self, workload: Workload) -> Json:
        explanation, key = explained(self.engine, workload, self.now_s), WorkloadKey(workload.key)
        forecast = self.forecasts().get(key)
        if forecast is not None and forecast.not_before is not None:
            return {**explanation, "forecast": shown(forecast, (), ())}
        if forecast is None or explanation["position"] is None:
            return {**explanation, "forecast": None}
        turns = islice(in_turn(self.engine, ClusterQueueName(explanation["clusterQueue"])), AHEAD_SHOWN)
        before = [pending.key for place, _, pending in turns if place < explanation["position"]]
        ends_at = self._forecaster.ends_at(self.engine, self.now_s)
        return {**explanation, "forecast": shown(forecast, before, changes(self.engine, workload, self.now_s, ends_at))}

    def why(self, workload: Workload) -> tuple[str, str]:
        """The reason code and the sentence of a pending workload."""
        found = why(self.engine, workload, self.now_s)
        return str(found.reason), found.message


def _given(file: Path) -> ControllerConfig:
    try:
        return load(file)
    except ConfigError as wrong:
        raise WrongInputError(str(wrong)) from None


async def _config(client: Client, where: Where, notes: list[str]) -> ControllerConfig:
    """The configuration in the file that was named, else the cluster's controller's, else the defaults."""
    if where.config is not None:
        return _given(where.config)
    try:
        text = await named_config(client, where)
        if text is not None:
            return parse(text, f"ConfigMap {where.controller}")
    except ConfigError as wrong:
        raise click.ClickException(str(wrong)) from None
    notes.append(f"ConfigMap {where.controller} is not there or not readable: the default configuration counts")
    return default()
