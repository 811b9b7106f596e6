"""Conversion between the served versions of ``kueue.x-k8s.io``: raw JSON in, raw JSON out. Pure.

v1beta2 is the hub and the stored version. Fields that v1beta1 lacks are listed in docs/webhooks.md and, in code, where
they are dropped: controller/objects/conversion/kinds.py.
"""

from controller.objects.conversion.kinds import GROUP, HUB, KINDS, OLD, convert
from controller.objects.conversion.review import answer
from controller.objects.conversion.tree import ConversionError

__all__ = ["GROUP", "HUB", "KINDS", "OLD", "ConversionError", "answer", "convert"]
