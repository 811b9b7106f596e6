"""The controller's configuration: Kueue's file in, one frozen ``ControllerConfig`` out.

``keys`` lists every key; ``reader`` walks a file by that list; ``decisions`` makes what the engine reads, ``process``
what the rest of the controller reads; ``load`` puts it together.
"""

from controller.config.load import default, load, parse
from controller.config.settings import ControllerConfig, Policy, WithoutEffect
from yamlfile import ConfigError

__all__ = ["ConfigError", "ControllerConfig", "Policy", "WithoutEffect", "default", "load", "parse"]
