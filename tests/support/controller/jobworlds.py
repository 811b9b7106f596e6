"""Worlds in which a job waits or runs already."""

from typing import Any

from controller.jobs.framework.settings import JobSettings
from tests.support.controller.jobmodel import World, job


def queued(
    minor: int = 36, *, settings: JobSettings | None = None, meta: dict[str, Any] | None = None, **spec: Any
) -> World:
    body = job(**spec)
    body["metadata"] |= meta or {}
    world = World(body, minor=minor, settings=settings)
    world.settle()
    return world


def running(minor: int = 36, **more: Any) -> World:
    count = more.pop("count", None)
    world = queued(minor, **more)
    world.admit(world.only, count=count)
    world.settle()
    return world


def relabel(world: World, **labels: str | None) -> None:
    world.edit(
        {"metadata": {"labels": {f"kueue.x-k8s.io/{key.replace('_', '-')}": value for key, value in labels.items()}}}
    )
