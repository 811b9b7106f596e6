"""Taking back victims that were not needed."""

from collections.abc import Callable

from controller.engine.cluster.cluster import Cluster
from controller.engine.cluster.incoming import Target


def fill_back(cluster: Cluster, targets: list[Target], fits: Callable[[], bool]) -> None:
    """Charge victims back that turn out not to be needed, from the last but one to the first.

    The last one made it fit, so it stays. Kueue (fillBackWorkloads) fills the gap with the last target, which moves
    only targets checked before: the same victims, in another order.
    """
    for place in range(len(targets) - 2, -1, -1):
        cluster.charge(targets[place].holder)
        if fits():
            del targets[place]
        else:
            cluster.release(targets[place].holder)
