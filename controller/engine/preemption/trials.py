"""Making room on trial, and taking back more than was needed."""

from collections.abc import Callable

from controller.engine.cluster.cluster import Cluster
from controller.engine.cluster.incoming import Target


def fill_back(cluster: Cluster, targets: list[Target], fits: Callable[[], bool]) -> None:
    """Give back the victims that turn out not to be needed, from the last but one to the first.

    The last one made it fit, so it stays. Kueue deletes by putting the last in the gap, which moves only those looked
    at before: the same victims, in another order.
    """
    for place in range(len(targets) - 2, -1, -1):
        cluster.charge(targets[place].holder)
        if fits():
            del targets[place]
        else:
            cluster.release(targets[place].holder)
