"""The agent's configuration: flags, environment and file in, one frozen ``Settings`` out.

``table`` lists every setting; ``load`` reads them, and keeps the configuration that was last in use; ``sections`` reads
what is more than a value; ``changes`` says what a reload touches.
"""

from agent.config.arguments import parse_args
from agent.config.changes import Changes, Concern, changed
from agent.config.load import LoadedConfig, last_good, load, load_or_last_good, remember, stand_in
from agent.config.names import ConfigName
from agent.config.settings import Address, LogFormat, LogLevel, LogSettings, Settings
from yamlfile import ConfigError

__all__ = [
    "Address",
    "Changes",
    "Concern",
    "ConfigError",
    "ConfigName",
    "LoadedConfig",
    "LogFormat",
    "LogLevel",
    "LogSettings",
    "Settings",
    "changed",
    "last_good",
    "load",
    "load_or_last_good",
    "parse_args",
    "remember",
    "stand_in",
]
