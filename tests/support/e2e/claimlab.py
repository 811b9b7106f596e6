"""Volumes of the node for the records of the controller's replicas, and what the files in them hold."""

import json
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from controller.people.history.recorder_shell import FILE
from tests.support.e2e.lifelab import NAMESPACE, Life

CLASS: Final = "records"
"""A storage class that has no provisioner: its volumes are made beforehand."""


@dataclass(frozen=True)
class Volumes:
    life: Life
    folders: tuple[Path, ...]

    @classmethod
    def made(cls, life: Life, count: int) -> "Volumes":
        """Local volumes of the node, free to be claimed."""
        folders = tuple(life.folder / "volumes" / str(at) for at in range(count))
        for folder in folders:
            folder.mkdir(parents=True)
        volumes = [_volume(f"record-{at}", folder, life.lab.host.name) for at, folder in enumerate(folders)]
        life.cluster.kubectl("create", "-f", "-", input="\n---\n".join(map(json.dumps, volumes)))
        return cls(life, folders)

    def samples(self) -> list[int]:
        """Of each volume how many samples of the fleet its file has; 0 where there is none."""
        return [_samples(folder / FILE) for folder in self.folders]

    def gone(self) -> None:
        """Removes claims and volumes, which stay whatever the chart makes."""
        kubectl = self.life.cluster.kubectl
        names = {one["metadata"]["name"] for one in self._claims()}
        assert names == {f"history-tessera-controller-{at}" for at in range(len(self.folders))}
        kubectl("-n", NAMESPACE, "delete", "persistentvolumeclaim", *names, "--timeout=120s")
        kubectl("delete", "persistentvolume", *(f"record-{at}" for at in range(len(self.folders))), "--timeout=120s")
        shutil.rmtree(self.life.folder / "volumes")

    def _claims(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.life.lab.get(f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims")[
            "items"
        ]
        return found


def _volume(name: str, folder: Path, node: str) -> dict[str, Any]:
    on_node = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": CLASS,
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": str(folder)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on_node]}]}},
        },
    }


def _samples(file: Path) -> int:
    if not file.exists():
        return 0
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as record:
        try:
            (found,) = record.execute(
                "SELECT sum(count) FROM hours WHERE what = 'fleet' AND series = 'there'"
            ).fetchone()
        except sqlite3.OperationalError:  # its tables are being made
            return 0
    return int(found or 0)
