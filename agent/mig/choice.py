"""The node's label ``nvidia.com/mig.config``: which of mig-parted's configurations it chooses, and the answer to it.

Without a file the configurations are those that NVIDIA's MIG manager makes from the hardware, unless that manager runs
on the node: then the label is for it alone.

A layout takes precedence over the label: where the two differ about a GPU the label is answered ``failed``, and a line
names the GPU. The rest of the configuration is carried out.
"""

import logging
from collections.abc import Mapping

from agent.config.settings import MigManager, MigSettings
from agent.mig import generated, parted
from agent.mig.outcomes import MigState, MigStatus, Wish
from agent.mig.parted import Configurations
from agent.persistence.files import identity
from agent.words import mig as words
from inventory.devices import Gpu, GpuUuid
from inventory.layout.entries import GpuMode, Mig
from yamlfile import ConfigError, UnreadableError, read_text

log = logging.getLogger(__name__)

LABEL = "nvidia.com/mig.config"
ANSWER = "nvidia.com/mig.config.state"
MANAGER = "nvidia.com/gpu.deploy.mig-manager"
"""The GPU operator's label: ``true`` where it has NVIDIA's MIG manager run."""


class PartedChoice:
    """The configuration that the label chooses. ``reread`` reads the file, the other methods answer from memory.

    ``MigNode`` alone writes ``settings``, ``label`` (the value of ``LABEL`` on the Node; None without it) and
    ``other_manager``, and asks for the wishes again after each change.
    """

    def __init__(self, settings: MigSettings) -> None:
        self.settings = settings
        self.label: str | None = None
        self.other_manager = False
        """Whether the GPU Operator marks this node for NVIDIA's MIG manager."""
        self._configurations: Configurations = {}
        self._seen: tuple[object, ...] = ()
        self._broken = ""
        self._problems: tuple[str, ...] = ()
        self._wishes: dict[GpuUuid, Wish] = {}

    @property
    def problems(self) -> tuple[str, ...]:
        """Why the label cannot be followed, one line each; the outcomes of its wishes are not among them."""
        return self._problems

    @property
    def is_left(self) -> bool:
        """Whether the label is NVIDIA's MIG manager's to follow."""
        auto = self.settings.manager is MigManager.AUTO
        return self.other_manager and auto and self.settings.config_file is None

    @property
    def _asked(self) -> bool:
        """Whether there is a label for us to follow: with a file, or on a node with GPUs that can do MIG."""
        return bool(self.label) and (self.settings.config_file is not None or bool(self._configurations))

    def reread(self) -> bool:
        """Read the file if it is another one than before (a ConfigMap's files are swapped). True where that changes the
        configurations. A file that cannot be read changes nothing that was known of it, and is read again the next
        time.
        """
        path = self.settings.config_file
        seen = (path, identity(path))
        if seen == self._seen:
            return False
        if path is None:
            self._seen, self._configurations, self._broken = seen, {}, ""
            return True
        try:
            parsed = parted.parse(read_text(path), str(path))
        except UnreadableError as failed:
            log.warning("mig config cannot be read", extra={"problem": str(failed)})
            before, of_this = self._broken, self._seen[:1] == (path,)
            self._broken = before if of_this else str(failed)
            return self._broken != before
        except ConfigError as wrong:
            self._configurations, self._broken = {}, str(wrong)
        else:
            self._configurations, self._broken = parsed.configurations, ""
            for warning in parsed.warnings:
                log.warning("mig config", extra={"problem": warning})
        self._seen = seen
        return True

    def wishes(self, gpus: tuple[Gpu, ...], named: Mapping[GpuUuid, GpuMode]) -> dict[GpuUuid, Wish]:
        """The label's wishes for these GPUs, without those that a layout names."""
        self._problems, self._wishes = (), {}
        if self.settings.config_file is None:
            self._configurations = {} if self.is_left else generated.configurations(gpus)
        if not self._asked or self.label is None:
            return {}
        entries = self._configurations.get(self.label)
        if self._broken or entries is None:
            known = ", ".join(sorted(self._configurations)) or "none"
            self._problems = (self._broken or words.unknown_label(LABEL, self.label, known),)
            return {}
        absent = parted.missing(entries, gpus)
        problems = [words.no_such_gpu(LABEL, self.label, index) for index in absent]
        self._wishes = parted.wishes(entries, gpus, self.settings.when_busy)
        for gpu in gpus:
            wish, mode = self._wishes.get(gpu.uuid), named.get(gpu.uuid)
            if wish is not None and mode is not None:
                del self._wishes[gpu.uuid]
                if not _same(wish, mode):
                    problems.append(words.layout_goes_first(LABEL, self.label, gpu.index))
        self._problems = tuple(problems)
        return dict(self._wishes)

    def answer(self, statuses: Mapping[GpuUuid, MigStatus]) -> str | None:
        """The value of the state label: success, failed or pending; None where no label asks for a configuration."""
        if not self._asked:
            return None
        states = [statuses[gpu].state if gpu in statuses else None for gpu in self._wishes]
        if self._problems or any(state in (MigState.REFUSED, MigState.FAILED) for state in states):
            return "failed"
        return "success" if all(state is MigState.APPLIED for state in states) else "pending"


def _same(wish: Wish, mode: GpuMode) -> bool:
    if isinstance(mode, Mig):
        return wish.profiles is not None and sorted(wish.profiles) == sorted(mode.profiles)
    return wish.profiles is None
