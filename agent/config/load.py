"""From flags, environment and file to Settings. The order: command line, TESSERA_*, NVIDIA's names, file, default."""

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from agent.config.errors import ConfigError
from agent.config.jsontext import NotJson, looks_like_json, parse_json
from agent.config.lastgood import last_good
from agent.config.parsers import Unfit
from agent.config.reader import read_tree
from agent.config.sections import SPECIAL
from agent.config.settings import DriverSettings, LabelSettings, Settings
from agent.config.table import OPTIONS, Option
from agent.config.tree import MAX_BYTES, Node
from agent.health.settings import HealthSettings
from deviceplugin.strategy import AllocationSpec
from inventory.ids import NodeName
from inventory.sharing import LayoutSpec


class LoadedConfig(Struct, frozen=True, kw_only=True):
    """``path`` is the config file, None without one; ``text`` what it says: ``remember`` gets it once it is in use.

    ``rejected`` is set when the file was bad and the last good one stands in.
    """

    settings: Settings
    path: Path | None = None
    warnings: tuple[str, ...] = ()
    text: str | None = None
    rejected: ConfigError | None = None


def load(path: Path | None, env: Mapping[str, str], flags: Mapping[str, str]) -> LoadedConfig:
    """Read everything. ``flags`` holds the text of each flag given, by name (``--node-name``); see ``parse_args``.

    Without ``path`` the file is what ``--config`` or its variables name, or none. Raises ConfigError.
    """
    given = _given(env, flags)
    file = path or given.get("config_file")
    text = None if file is None else _read(file)
    return msgspec.structs.replace(_build(given, text, str(file or "")), path=file)


def load_or_last_good(path: Path | None, env: Mapping[str, str], flags: Mapping[str, str]) -> LoadedConfig:
    """``load``; when the file is bad, the last good one of the state folder stands in and ``rejected`` says why.

    For the start of the agent. Raises ConfigError when there is no last good one, or flags or environment are bad.
    """
    try:
        return load(path, env, flags)
    except ConfigError as rejected:
        if not rejected.from_file:
            raise
        given = _given(env, flags)
        text = last_good(given.get("state_dir", Path("/var/lib/tessera")))
        if text is None:
            raise
        try:
            found = _build(given, text, "last good configuration")
        except ConfigError:
            raise rejected from None
        return msgspec.structs.replace(found, rejected=rejected, path=path or given.get("config_file"))


def parse(text: str, file: str = "config") -> tuple[dict[str, Any], tuple[str, ...]]:
    """A config file's values by Settings target, and the warnings. Raises ConfigError."""
    values, warnings = read_tree(_tree(text, file), file, SPECIAL)
    return values, tuple(warnings)


def _tree(text: str, file: str) -> Node:
    if looks_like_json(text):
        try:
            return parse_json(text, file)
        except NotJson:
            pass
    from agent.config.yamltext import parse_yaml

    return parse_yaml(text, file)


def _read(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_BYTES + 1)
    except OSError as failed:
        raise ConfigError(str(file), "", os.strerror(failed.errno or 0).lower(), "a readable file") from None
    if len(content) > MAX_BYTES:
        raise ConfigError(str(file), "", f"more than {MAX_BYTES} bytes", "a smaller file")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as wrong:
        line = content.count(b"\n", 0, wrong.start) + 1
        raise ConfigError(f"{file}:{line}", "", "bytes that are no UTF-8", "UTF-8 text") from None


def _given(env: Mapping[str, str], flags: Mapping[str, str]) -> dict[str, Any]:
    """What flags and environment say, by Settings target."""
    values: dict[str, Any] = {}
    for option in OPTIONS:
        if option.flag in flags:
            _convert(option, flags[option.flag], "command line", option.flag, values)
            continue
        for name in option.variables:
            text = env.get(name)
            if text is not None and (text or option.empty_counts):
                _convert(option, text, "environment", name, values)
                break
    return values


def _convert(option: Option, text: str, where: str, name: str, values: dict[str, Any]) -> None:
    try:
        value = option.parser.convert(text)
    except Unfit as unfit:
        found = unfit.found or repr(text[:60])
        raise ConfigError(where, name, found, option.parser.expected, from_file=False) from None
    if option.target == "health.disabled_xids" and value is None and "all" in text.lower().split(","):
        values["health.all_disabled"] = True
    if option.target:
        values[option.target] = value


def _build(given: dict[str, Any], text: str | None, file: str) -> LoadedConfig:
    from_file, warnings = parse(text, file) if text is not None else ({}, ())
    values = {**from_file, **given}
    groups: dict[str, dict[str, Any]] = {}
    for target, value in values.items():
        group, _, name = target.rpartition(".")
        groups.setdefault(group, {})[name] = value
    return LoadedConfig(settings=_settings(groups), warnings=warnings, text=text)


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
        layout=LayoutSpec(**groups.get("layout", {})),
        allocation=AllocationSpec(**groups.get("allocation", {})),
        driver=DriverSettings(**driver),
        health=_health(groups.get("health", {})),
        labels=LabelSettings(**labels),
        events=msgspec.structs.replace(defaults.events, **groups.get("events", {})),
        logging=msgspec.structs.replace(defaults.logging, **groups.get("logging", {})),
    )


def _health(values: dict[str, Any]) -> HealthSettings:
    """DP_DISABLE_HEALTHCHECKS=all means every check, unless some XID is to count after all."""
    all_disabled = values.pop("all_disabled", False)
    enabled = values.get("enabled_xids", frozenset())
    if all_disabled and enabled is not None and not enabled:
        values.setdefault("enabled", False)
    if enabled is None:
        values["disabled_xids"] = frozenset()
    return HealthSettings(**values)
