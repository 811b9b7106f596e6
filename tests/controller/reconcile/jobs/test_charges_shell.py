"""How much of its time the controller spends on children that wait, whatever their number."""

import pytest

from controller.cluster.watching.workqueue import NotYetError
from controller.reconcile.jobshell.charges_shell import ChargeReader
from kube.client import Client
from kube.config import ClusterConfig
from tests.support.controller.jobmodel import cluster_objects


async def test_children_of_one_namespace_take_a_fifth_of_the_time_and_those_of_others_do_not_wait_for_them() -> None:
    now_s = 100.0
    async with Client(ClusterConfig(server="http://none")) as client:
        charges = ChargeReader(
            client,
            cluster_objects(),
            workloads=lambda _uid: (),
            children=lambda _uid: (),
            behind=lambda _kind, _job: False,
            now_s=lambda: now_s,
        )
        async with charges.alone("crowded"):
            now_s += 1.0
        async with charges.alone("other"):
            pass
        for passed_s in (0.0, 3.9):
            now_s = 101.0 + passed_s
            with pytest.raises(NotYetError):
                charges.rest("crowded")
            with pytest.raises(NotYetError):
                async with charges.alone("crowded"):
                    raise AssertionError("it rests")
        now_s = 105.0
        charges.rest("crowded")
