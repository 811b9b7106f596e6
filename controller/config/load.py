"""From a configuration file to ControllerConfig. ``parse`` is pure; ``load`` reads the file and nothing else."""

from pathlib import Path

from controller.config.decisions import engine_config
from controller.config.keys import API_VERSIONS, KEYS, V1BETA1
from controller.config.process import process_settings
from controller.config.reader import Found, read
from controller.config.settings import ControllerConfig, Policy
from yamlfile import ConfigError, Document, Place, YamlKind, parse_text, read_text


def load(file: Path | None) -> ControllerConfig:
    """The configuration in ``file``; without one, ``default()``. Raises ConfigError."""
    return default() if file is None else parse(read_text(file), str(file))


def default() -> ControllerConfig:
    """Without a file: Kueue's defaults, and Tessera's policy."""
    return _build(Found(), Policy.TESSERA, newest=True)


def parse(text: str, file: str = "config") -> ControllerConfig:
    """The configuration that ``text`` is; ``file`` is what messages call it. Raises ConfigError."""
    root = Place(Document(file=file), "", parse_text(text, file))
    newest = _check_version(root)
    block = root.node.entries.get("tessera")
    if block is not None and block.kind is YamlKind.NULL:
        # An empty block does not say which policy holds, and the two evict different workloads.
        raise ConfigError(f"{file}:{block.line}", "tessera", "nothing", "a section, e.g. {policy: tessera}")
    found = read(root, KEYS, newest=newest)
    policy = found.get("tessera.policy", Policy.TESSERA if "tessera" in found else Policy.KUEUE)
    return _build(found, policy, newest=newest)


def _build(found: Found, policy: Policy, *, newest: bool) -> ControllerConfig:
    engine = engine_config(found, policy, newest=newest)
    settings = process_settings(found)
    return ControllerConfig(policy=policy, engine=engine, without_effect=tuple(found.without_effect), **settings)


def _check_version(root: Place) -> bool:
    """Whether the file is of the newest version. Raises ConfigError for what is no configuration file at all."""
    if root.node.kind is not YamlKind.MAP:
        raise root.error(f"a section with apiVersion: {API_VERSIONS[0]} and kind: Configuration")
    children = dict(root.children())
    for key, words in (("apiVersion", API_VERSIONS), ("kind", ("Configuration",))):
        if key not in children or children[key].is_null:
            raise root.error(f"the key {key}, {' or '.join(words)}", "none")
        if children[key].node.text not in words or children[key].node.kind is not YamlKind.STRING:
            hint = ""
            if children[key].node.text in ("v1", "ConfigMap") and "data" in children:
                hint = " (a ConfigMap's file is the text below its data)"
            raise children[key].error(f"{' or '.join(words)}{hint}")
    return children["apiVersion"].node.text != V1BETA1
