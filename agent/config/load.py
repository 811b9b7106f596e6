"""Makes Settings of flags, environment and file. The order: command line, TESSERA_*, NVIDIA's names, file, default."""

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from agent.config.reader import read_tree
from agent.config.sections import SPECIAL
from agent.config.settings import ConfigFallback, DriverSettings, LabelSettings, MigSettings, MpsSettings, Settings
from agent.config.table import OPTIONS, Option
from agent.health.remediation import Remediation
from agent.health.settings import HealthSettings
from agent.persistence.files import write_atomically
from deviceplugin.strategy import AllocationSpec
from failpoints.names import Failpoint
from inventory.devices import NodeName
from inventory.layout.sharing import LayoutSpec
from yamlfile import ConfigError, parse_text, read_text
from yamlfile.parsers import Unfit, words_in
from yamlfile.tree import MAX_BYTES

LAST_GOOD = "config.last-good"
"""The name of the file in the state folder with the configuration that was last in use: a bad edit must not keep an
agent from starting.
"""


class LoadedConfig(Struct, frozen=True, kw_only=True):
    """A configuration that was read. ``path`` is the config file, None without one; ``text`` is its content, which
    ``remember`` gets once it is in use.

    ``rejected`` is set when the file was bad and the last good one stands in.
    """

    settings: Settings
    path: Path | None = None
    warnings: tuple[str, ...] = ()
    text: str | None = None
    rejected: ConfigError | None = None


def load(path: Path | None, env: Mapping[str, str], flags: Mapping[str, str]) -> LoadedConfig:
    """Read flags, environment and file. ``flags`` holds the text of each flag given, by name (``--node-name``); see
    ``parse_args``.

    Without ``path`` the file is what ``--config`` or its variables name, or none. Raises ConfigError.
    """
    given = _given(env, flags)
    file = path or given.values.get("config_file")
    text = None if file is None else read_text(file)
    return msgspec.structs.replace(_build(given, text, str(file or "")), path=file)


def load_or_last_good(path: Path | None, env: Mapping[str, str], flags: Mapping[str, str]) -> LoadedConfig:
    """Like ``load``, but when the file is bad, the last good one of the state folder stands in and ``rejected`` says
    why.

    The agent starts with it. Raises ConfigError when there is no last good one, or flags or environment are bad.
    """
    try:
        return load(path, env, flags)
    except ConfigError as rejected:
        found = stand_in(path, env, flags, rejected) if rejected.from_file else None
        if found is None:
            raise
        return found


def stand_in(
    path: Path | None, env: Mapping[str, str], flags: Mapping[str, str], rejected: ConfigError
) -> LoadedConfig | None:
    """The last good configuration of the state folder, in place of one that was ``rejected``; None without one."""
    overrides = _given(env, flags)
    text = last_good(overrides.values.get("state_dir", Path("/var/lib/tessera")))
    if text is None:
        return None
    try:
        found = _build(overrides, text, "last good configuration")
    except ConfigError:
        return None
    return msgspec.structs.replace(found, rejected=rejected, path=path or overrides.values.get("config_file"))


def remember(state_dir: Path, text: str) -> None:
    """Keep ``text`` as the last good configuration, in one step, mode 0600. Raises OSError."""
    write_atomically(state_dir / LAST_GOOD, text.encode(), Failpoint.LAST_GOOD_CONFIG)


def last_good(state_dir: Path) -> str | None:
    """The text that ``remember`` kept; None where there is none, or where it cannot be read as a configuration."""
    try:
        # A link in the file's place was not written by the agent.
        with os.fdopen(os.open(state_dir / LAST_GOOD, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            content = file.read(MAX_BYTES + 1)
        return content.decode() if len(content) <= MAX_BYTES else None
    except (OSError, UnicodeDecodeError):
        return None


def parse(text: str, file: str = "config") -> tuple[dict[str, Any], tuple[str, ...]]:
    """A config file's values by Settings target, and the warnings. Raises ConfigError."""
    values, warnings = read_tree(parse_text(text, file, forgiving=True), file, SPECIAL)
    return values, tuple(warnings)


class _Given(Struct, frozen=True):
    """The content of flags and environment: values by Settings target, and warnings. ``defaults`` are the targets for
    which an empty flag of NVIDIA's says that the default holds, whatever the file says.
    """

    values: dict[str, Any]
    warnings: list[str]
    defaults: set[str]


def _given(env: Mapping[str, str], flags: Mapping[str, str]) -> _Given:
    overrides = _Given({}, [], set())
    for option in OPTIONS:
        if option.flag in flags:
            if not flags[option.flag] and option.empty_is_default:
                overrides.defaults.add(option.target)
                continue
            _convert(option, flags[option.flag], "command line", option.flag, overrides)
            continue
        for name in option.variables:
            text = env.get(name)
            if text is not None and (text or option.empty_counts):
                _convert(option, text, "environment", name, overrides)
                break
    return overrides


def _convert(option: Option, text: str, where: str, name: str, given: _Given) -> None:
    if option.sift is not None:
        text, bad = option.sift(text)
        for word in bad:
            given.warnings.append(
                f"{where}: {name}: found {word[:60]!r}, expected {option.parser.expected}: passed over"
            )
    try:
        value = option.parser.convert(text)
    except Unfit as unfit:
        found = unfit.found or repr(text[:60])
        raise ConfigError(where, name, found, option.parser.expected, from_file=False) from None
    if option.target == "health.disabled_xids" and value is None and "all" in words_in(text.lower()):
        given.values["health.all_disabled"] = True
    if warning := option.warning(value):
        given.warnings.append(f"{where}: {name}: {warning}")
    if option.target:
        given.values[option.target] = value


def _build(given: _Given, text: str | None, file: str) -> LoadedConfig:
    from_file, warnings = parse(text, file) if text is not None else ({}, ())
    kept = {target: value for target, value in from_file.items() if target not in given.defaults}
    values = {**kept, **given.values}
    groups: dict[str, dict[str, Any]] = {}
    for target, value in values.items():
        group, _, name = target.rpartition(".")
        groups.setdefault(group, {})[name] = value
    return LoadedConfig(settings=_settings(groups), warnings=(*given.warnings, *warnings), text=text)


def _settings(groups: dict[str, dict[str, Any]]) -> Settings:
    own = dict(groups.get("", {}))
    own.pop("config_file", None)
    own.setdefault("node_name", socket.gethostname().lower())
    own["node_name"] = NodeName(own["node_name"])
    if own.get("kubeconfig") == Path("none"):
        own.update(kubeconfig=None, use_api_server=False)
    driver = groups.get("driver", {})
    driver.setdefault("dev_root", driver.get("driver_root", Path("/")))
    labels = groups.get("labels", {})
    labels.setdefault("machine_type_file", own.get("sys_root", Path("/sys")) / "class/dmi/id/product_name")
    defaults = Settings(node_name=own["node_name"])
    return Settings(
        **own,
        config_fallback=ConfigFallback(**groups.get("config_fallback", {})),
        layout=LayoutSpec(**groups.get("layout", {})),
        allocation=AllocationSpec(**groups.get("allocation", {})),
        driver=DriverSettings(**driver),
        mig=MigSettings(**groups.get("mig", {})),
        health=_health(groups.get("health", {})),
        remediation=Remediation(**groups.get("remediation", {})),
        mps=MpsSettings(**groups.get("mps", {})),
        labels=LabelSettings(**labels),
        events=msgspec.structs.replace(defaults.events, **groups.get("events", {})),
        metrics=msgspec.structs.replace(defaults.metrics, **groups.get("metrics", {})),
        logging=msgspec.structs.replace(defaults.logging, **groups.get("logging", {})),
    )


def _health(values: dict[str, Any]) -> HealthSettings:
    """The health settings from their values. DP_DISABLE_HEALTHCHECKS=all disables every check, unless some XID is to
    count after all.
    """
    all_disabled = values.pop("all_disabled", False)
    enabled = values.get("enabled_xids", frozenset())
    if all_disabled and enabled is not None and not enabled:
        values.setdefault("enabled", False)
    if enabled is None:
        values["disabled_xids"] = frozenset()
    return HealthSettings(**values)
