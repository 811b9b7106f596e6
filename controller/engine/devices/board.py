"""What a GpuNode says of its node, in numbers that placement can use."""

from collections.abc import Mapping

from controller.engine.resources import Amount, ResourceName
from controller.objects.gpunode import GpuNode


def ceilings(gpu_node: GpuNode) -> Mapping[ResourceName, Amount]:
    """By resource, what the node's agent can hand out: replicas of the devices that are healthy."""
    found: dict[ResourceName, Amount] = {}
    for device in gpu_node.status.devices:
        instances = device.mig.instances if device.mig is not None else ()
        offered = [(device.offers, device.healthy)]
        offered += [(one.offers, device.healthy if one.health is None else one.health.handed_out) for one in instances]
        for offers, healthy in offered:
            for offer in offers:
                name = ResourceName(offer.resource)
                found[name] = found.get(name, 0) + (offer.replicas if healthy else 0)
    return found
