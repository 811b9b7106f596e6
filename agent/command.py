"""Runs ``daemon.Agent`` from the command line, and ends it within two seconds of a signal.

Exit codes: 0 stopped as asked, 1 could not go on, 2 command line, environment, configuration or fleet file is wrong.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from msgspec import structs

from agent.cluster.reporter import NoCluster, NoReporter, Reporter
from agent.config.arguments import parse_args
from agent.config.changes import changed
from agent.config.load import LoadedConfig, load, load_or_last_good, remember, stand_in
from agent.config.names import ConfigName
from agent.config.settings import Settings
from agent.daemon import Agent, Restart
from agent.dra.answer import file_prefix
from agent.kubelet.devicefiles import required_channel_problem
from agent.mig.journal import FOLDER
from agent.persistence.files import identity, remove_half_written
from agent.process import heap
from agent.process.log import configure
from agent.process.tasks import SteadyClock, until_poll
from agent.words import node as words
from deviceplugin.answer import CDI_VENDOR
from yamlfile import ConfigError, UnreadableError

log = logging.getLogger(__name__)

CONFIG_POLL_S = 5.0
FIRST_RETRY_S = 0.5
LONGEST_RETRY_S = 10.0
"""The longest wait, in seconds, between two tries to read a file that exists and cannot be read."""
STOP_WITHIN_S = 1.8


class StateDirInUse(OSError):  # noqa: N818 - a state, not a mistake
    """Another agent works in this state folder."""


def run(argv: list[str], env: Mapping[str, str]) -> int:
    """Run an agent that was started with ``argv`` (without the program's name) and ``env``; return the exit code."""
    flags = parse_args(argv)
    try:
        config = load_or_last_good(None, env, flags)
        config = _named(config, env, flags)
        settings = _with_simulated_trees(config.settings)
        configure(settings.logging)
        lock, without = _claim(settings.state_dir)
    except (ConfigError, StateDirInUse) as wrong:
        sys.stderr.write(f"tessera-agent: {wrong}\n")
        return 2 if isinstance(wrong, ConfigError) else 1
    if without:
        log.warning("the state folder cannot be written: serving without it", extra={"error": without})
    for warning in config.warnings:
        log.warning("config", extra={"problem": warning})
    with lock or contextlib.nullcontext():
        if lock is not None:
            _sweep(settings)
        if problem := required_channel_problem(settings):
            sys.stderr.write(f"tessera-agent: {problem}\n")
            return 1
        return _serve(settings, config, env, flags)


def _named(config: LoadedConfig, env: Mapping[str, str], flags: Mapping[str, str]) -> LoadedConfig:
    """The configuration that the node's label named when it was last seen; without one, what holds without a label.

    Raises ConfigError.
    """
    names = ConfigName(config.settings.state_dir)
    path = names.path(config.settings.config_dir, config.path, config.settings.config_fallback)
    if names.undecided is not None:
        # The label may choose a configuration as soon as the Node is read: until then the agent uses what was in use
        # last, if there is one.
        last = stand_in(None, env, flags, names.undecided)
        return last or structs.replace(config, warnings=(*config.warnings, str(names.undecided)))
    return config if path == config.path else load_or_last_good(path, env, flags)


def _serve(settings: Settings, config: LoadedConfig, env: Mapping[str, str], flags: Mapping[str, str]) -> int:
    try:
        stop_simulation = _simulate(settings)
    except ValueError as wrong:
        sys.stderr.write(f"tessera-agent: {wrong}\n")
        return 2
    except (OSError, RuntimeError) as failed:
        sys.stderr.write(f"tessera-agent: --simulate: {failed}\n")
        return 1
    try:
        asyncio.run(_Process(settings, config, env, flags).run())
    except NoCluster as wrong:
        sys.stderr.write(f"tessera-agent: {wrong}\n")
        return 2
    except Restart:
        logging.shutdown()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - ourselves, anew
    except OSError as failed:
        log.error("cannot go on", extra={"error": str(failed)})  # noqa: TRY400 - the traceback says no more
        return 1
    finally:
        stop_simulation()
    return 0


class _Process:
    """Signals and the config file around an Agent."""

    def __init__(
        self, settings: Settings, config: LoadedConfig, env: Mapping[str, str], flags: Mapping[str, str]
    ) -> None:
        self._settings = settings
        self._config = config
        self._env = env
        self._flags = flags
        self._names = ConfigName(settings.state_dir)
        self._stop = asyncio.Event()
        self._reload = asyncio.Event()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_stop)
        loop.add_signal_handler(signal.SIGHUP, self._reload.set)
        reporter = make_reporter(self._settings)
        agent = Agent(self._settings, reporter, SteadyClock(), renamed=self._on_name, settled=heap.give_back)
        if self._config.rejected is not None:
            log.error("config rejected, the last good one stands in", extra={"problem": str(self._config.rejected)})
            reporter.problem(words.last_config_stands(str(self._config.rejected)))
        self._remember(self._config)
        follow = asyncio.create_task(self._follow_config(agent, reporter))
        # A follower that fails ends the process in good order, as any of the agent's own tasks does.
        follow.add_done_callback(lambda _: self._stop.set())
        try:
            await agent.run(self._stop)
        finally:
            follow.cancel()
            (ended,) = await asyncio.gather(follow, return_exceptions=True)
        if isinstance(ended, Exception):
            raise ended

    def _on_name(self, name: str | None) -> None:
        """Take the configuration that the node's label names now, and reload if it differs."""
        if name != self._names.name:
            self._names.choose(name)
            self._reload.set()

    def _on_stop(self) -> None:
        log.info("stopping")
        self._stop.set()
        # Last resort: whatever hangs, the process ends.
        timer = threading.Timer(STOP_WITHIN_S, os._exit, (0,))
        timer.daemon = True
        timer.start()

    async def _follow_config(self, agent: Agent, reporter: Reporter) -> None:
        """Reload on SIGHUP, and when the path leads to another file (a ConfigMap's files are swapped, never signalled).

        A file that cannot be read is tried again, less and less often: no signal tells when it becomes readable.
        """
        seen = identity(self._path())
        retry_s = FIRST_RETRY_S if isinstance(self._config.rejected, UnreadableError) else None
        while True:
            try:
                async with asyncio.timeout(until_poll(CONFIG_POLL_S) if retry_s is None else retry_s):
                    await self._reload.wait()
            except TimeoutError:
                if retry_s is None and identity(self._path()) == seen:
                    continue
            self._reload.clear()
            seen = identity(self._path())
            try:
                await self._take_up(agent, reporter)
                retry_s = None
            except UnreadableError as failed:
                log.warning("config cannot be read, what was in use stays", extra={"problem": str(failed)})
                if retry_s is None:
                    reporter.problem(words.config_unreadable(str(failed)))
                retry_s = FIRST_RETRY_S if retry_s is None else min(retry_s * 2, LONGEST_RETRY_S)

    async def _take_up(self, agent: Agent, reporter: Reporter) -> None:
        """Read the configuration again and take it into use; a bad file leaves the old settings in use. Raises
        UnreadableError.
        """
        try:
            path = self._path()
            if self._names.undecided is not None:
                raise self._names.undecided
            config = load(path, self._env, self._flags)
        except UnreadableError:
            raise
        except ConfigError as wrong:
            self._reject(agent, reporter, str(wrong))
            return
        settings = _with_simulated_trees(config.settings)
        if problem := required_channel_problem(settings):
            self._reject(agent, reporter, problem)
            return
        changes = changed(self._settings, settings)
        if changes.restart_needed:
            log.warning("config", extra={"problem": f"only a restart changes {', '.join(changes.restart_needed)}"})
        for warning in config.warnings:
            log.warning("config", extra={"problem": warning})
        self._settings = settings
        configure(settings.logging)
        await agent.reconfigure(settings)
        agent.metrics.reloaded(None)
        self._remember(config)
        log.info("config reloaded", extra={"changed": ",".join(sorted(changes.concerns)) or "nothing"})

    @staticmethod
    def _reject(agent: Agent, reporter: Reporter, problem: str) -> None:
        log.error("config rejected, the old one stays", extra={"problem": problem})
        reporter.problem(words.old_config_stays(problem))
        agent.metrics.reloaded(problem)

    def _remember(self, config: LoadedConfig) -> None:
        if config.text is None or config.rejected is not None:
            return
        try:
            remember(self._settings.state_dir, config.text)
        except OSError as failed:
            log.warning("config not kept", extra={"error": str(failed)})

    def _path(self) -> Path | None:
        given = self._flags.get("--config") or self._env.get("TESSERA_CONFIG") or self._env.get("CONFIG_FILE")
        fallback = self._settings.config_fallback
        return self._names.path(self._settings.config_dir, Path(given) if given else None, fallback)


def make_reporter(settings: Settings) -> Reporter:
    """The reporter to the API server, or ``NoReporter`` for ``--kubeconfig none``. Raises OSError where the kubeconfig
    cannot be used.
    """
    if not settings.use_api_server:
        return NoReporter()
    from agent.cluster.apireporter import ApiReporter

    return ApiReporter(settings)


def _claim(state_dir: Path) -> tuple[IO[str] | None, str]:
    """Lock the state folder for this process. Returns the lock, which holds as long as the file is open, and why the
    folder cannot be written (empty where it can). Raises StateDirInUse.

    Without a folder that can be written the agent still serves: no other agent can write there either.
    """
    path, lock, without = state_dir / "agent.lock", None, ""
    try:
        state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = path.open("w")
    except OSError as failed:
        without = str(failed)
        with contextlib.suppress(OSError):
            lock = path.open()
    try:
        if lock is not None:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        if lock is not None:
            lock.close()
        raise StateDirInUse(f"--state-dir: {state_dir} is in use by another agent") from None
    return lock, without


def _sweep(settings: Settings) -> None:
    """Remove the files that an agent before was killed in the middle of writing. The state folder is locked: no other
    agent writes them.
    """
    for folder in (settings.state_dir, settings.state_dir / FOLDER, *settings.mps_dir.glob("*")):
        remove_half_written(folder)
    remove_half_written(settings.cdi_dir, CDI_VENDOR, file_prefix(settings.dra_driver))


def _with_simulated_trees(settings: Settings) -> Settings:
    """The settings with simulated /sys and /proc where hardware is simulated and no other trees are named."""
    if settings.simulate is None:
        return settings
    trees = settings.state_dir / "simulated"
    plain = Settings(node_name=settings.node_name)
    return structs.replace(
        settings,
        sys_root=trees / "sys" if settings.sys_root == plain.sys_root else settings.sys_root,
        proc_root=trees / "proc" if settings.proc_root == plain.proc_root else settings.proc_root,
    )


def _simulate(settings: Settings) -> Callable[[], None]:
    """Put simulated GPUs behind pynvml where the settings ask for them; return the function that ends them.

    Raises ValueError for a bad fleet file, OSError or StoreError (a RuntimeError) where their state cannot be kept.
    """
    if settings.simulate is None:
        return lambda: None
    import simulator

    simulation = simulator.install(
        settings.simulate,
        settings.node_name,
        settings.state_dir,
        sys_root=settings.sys_root,
        proc_root=settings.proc_root,
    )
    try:
        simulation.serve(settings.state_dir / "sim.sock")
    except OSError:
        simulation.close()
        raise
    return simulation.close
