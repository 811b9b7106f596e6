"""Making room on trial, and taking back more than was needed."""

from collections.abc import Callable

from controller.engine.cluster import Cluster
from controller.engine.incoming import Target


def fill_back(cluster: Cluster, targets: list[Target], fits: Callable[[], bool]) -> None:
    """Give back the victims that turn out not to be needed, from the last but one to the first.

    The last one made it fit, so it stays. A victim is deleted by putting the last in its place: who is looked at next,
    and so who is spared, depends on it (fact 18 of the corpus).
    """
    for place in range(len(targets) - 2, -1, -1):
        cluster.charge(targets[place].holder)
        if fits():
            targets[place] = targets[-1]
            targets.pop()
        else:
            cluster.release(targets[place].holder)
