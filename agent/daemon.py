"""The node agent: what its parts learn goes into one ``NodeState``; its changes go out to kubelet, API server and disk.

Start: the checkpoint of this boot is served at once, then NVML is asked and the difference mended. Each task below runs
for ever; one that ends takes the process down, so that its supervisor restarts it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import grpc
import grpc.aio

from agent.cluster.gpunodewatch_shell import GpuNodeWatch
from agent.cluster.nodewatch import CONFIG_LABEL, NodeWatch
from agent.cluster.recorder import Recorder
from agent.cluster.reporter import Reporter
from agent.config.settings import Settings
from agent.deviceaccess import DeviceAccess
from agent.dra.node import DraNode
from agent.hardware.driver import Discovery, Driver, Versions
from agent.hardware.monitor import GpuMonitor
from agent.hardware.resets import ResetDetector
from agent.hardware.worker import XidEvent
from agent.health.events import BootChanged, Event, Tick, XidSeen
from agent.health.states import HealthState
from agent.kubelet.devicefiles import nvml_library
from agent.kubelet.holders import Holder
from agent.kubelet.linkscores import LinkScores
from agent.kubelet.podresources import SOCKET, HolderWatch, PodResources
from agent.kubelet.podwatch import PodWatch
from agent.layoutchoice import LayoutChoice
from agent.mig.node import MigNode
from agent.mps.clients import client_of
from agent.mps.node import MpsNode
from agent.mps.specs import DaemonSpec
from agent.nodestate import NodeState
from agent.persistence import statefiles
from agent.persistence.files import identity
from agent.persistence.statefiles import Checkpoint, Known, LayoutState, StateFiles
from agent.process.spread import spread_of
from agent.process.tasks import Alarm
from agent.repair.node_shell import RepairNode
from agent.repair.rights import may_reset
from agent.report import Answers, NodeReport, device_counts, device_reports, held_devices, open_faults, transitions
from agent.serving.endpoints import Endpoints
from agent.serving.metrics import AgentMetrics, CallObserver
from agent.start import Learned, Start
from agent.telemetry.sampler import Sampler
from agent.words import node as node_words
from deviceplugin.choice import Preferrer
from deviceplugin.kubelet import listens
from deviceplugin.manager import PluginManager, sweep
from inventory import __version__
from inventory.devices import DeviceId, GpuUuid, NodeInventory, ResourceName
from inventory.layout.layout import REPLICA_MARK

log = logging.getLogger(__name__)

HOLDERS_WITHIN_S = 2.0
STATE = "state"
"""The name under which the node state keeps what is wrong with the state folder."""
LIST_FIRST_S = 0.1
"""Seconds to wait after the kubelet's first list before anything else is begun."""
LISTED_WITHIN_S = 2.0
"""Seconds for which probes, metrics and the API server wait at most for the kubelet to listen."""


class Restart(Exception):  # noqa: N818 - a request to the process, not an error
    """The process must execute itself again: the driver library it has loaded is not the driver's any more."""


class Agent:
    """One node's agent: wires its parts, and carries what one learns to the others. All of it runs on one event loop.

    ``node_state`` is written here, and by ``access``, ``mig`` and ``mps``, which withhold devices and report problems
    in it; every other part reads it. Each change is followed by ``_serve``: kubelet, API server and disk are never
    older than it for long.
    """

    def __init__(
        self,
        settings: Settings,
        reporter: Reporter,
        clock: Callable[[], float],
        *,
        renamed: Callable[[str | None], None] = lambda _: None,
        settled: Callable[[], None] = lambda: None,
    ) -> None:
        """``clock`` gives seconds since the epoch and never jumps.

        ``renamed`` is called with the configuration that the node's label names, None for none; ``settled`` once, when
        GPUs are advertised and have been read: the start is over.
        """
        self._settings = settings
        self._reporter = reporter
        self._clock = clock
        self._renamed = renamed
        self._settled = settled
        self._boot_id = statefiles.read_boot_id(settings.proc_root)
        self.metrics = AgentMetrics(self._gpus_text)
        self._recorder = Recorder(self.metrics, reporter)
        self._files = StateFiles(settings.state_dir, self._known, self._state_kept)
        self._layout = LayoutChoice(settings, self._files.layout.object_layout, may_reset=may_reset(settings))
        client = partial(client_of, settings.mps_dir)
        self.node_state = NodeState(settings.node_name, self._layout.choices, self._files.layout.modes, client)
        self.access = DeviceAccess(settings, self.node_state)
        restored = self._restore()
        self._start = Start(None if restored is None else restored.node.driver_version)
        spread = spread_of(settings, restarted=restored is not None)
        if spread.restarted:
            reporter.restarted()
        self._discovery_problems: tuple[str, ...] = ()
        self._listed = asyncio.Event()
        self._restart = asyncio.Event()
        self._alarm = Alarm(lambda: self.health(Tick()))
        self._asking: asyncio.Task[None] | None = None
        pod_resources = settings.kubelet_dir / "pod-resources"
        self.holders = HolderWatch(
            PodResources(pod_resources),
            self.node_state.units,
            self._held,
            claimed=lambda: self.dra.claimed,
            grants=self.node_state.grants,
            now=clock,
            waits=lambda: self.node_state.waits or self.mig.waits,
            told=lambda: self.pods.follows,
            kubelet=partial(identity, pod_resources / SOCKET),
        )
        self.pods = PodWatch(self.holders.nudge, spread=spread, granted=self._granted, look=self.holders.look)
        self.node_state.program_of = self.pods.containers.program
        self.watch = NodeWatch(self._node_changed, spread=spread, heard=reporter.heard)
        self.sampler = Sampler(
            self.node_state,
            lambda: self.holders.holders,
            self.pods.containers,
            settings.process_root,
            settings.metrics,
            problem=reporter.problem,
            passed=self._sampled,
        )
        self.manager = PluginManager(
            settings.device_plugins_dir,
            settings.registration_socket,
            Preferrer(planner=self.pods),
            CallObserver(self.metrics, self.holders.nudge, self._kubelet_listens),
        )
        self._resets = ResetDetector(restored.energy_mj if restored else None)
        self.monitor = GpuMonitor(self._driver, self, self._resets, settings.health, self.node_state.node)
        self.mps = MpsNode(
            self.node_state,
            settings,
            now=clock,
            serve=self._serve,
            warn=reporter.warning,
            holders=lambda: self.node_state.in_hand(self.holders.holders),
            claims=self._by_claim,
        )
        self.dra = DraNode(
            self.node_state,
            settings,
            self.access,
            self._claims_changed,
            self._serve,
            self._by_kubelet,
            self._bring,
            self.mps,
        )
        self.dra.observe(self.metrics.claim_called)
        self.sampler.claims = self.dra.uses
        self.sampler.sharers = lambda: self.holders.sharers
        self.mig = MigNode(
            self.node_state,
            self.monitor,
            settings,
            boot_id=self._boot_id,
            now=clock,
            serve=self._serve,
            say=reporter.problem,
            daemons_ended=self.mps.ended,
            kept=self._files.flush,
            by_claim=self.dra,
            checkpoint_changes=None if restored is None else restored.mig_changes,
        )
        self.repair = RepairNode(
            self.node_state,
            self.monitor,
            self.mig,
            self.mps,
            *self._layout.remediated,
            boot_id=self._boot_id,
            now=clock,
            serve=self._serve,
            tell=reporter,
            listener=self.metrics,
            recorded=self._recorder.transitions,
        )
        self.endpoints = Endpoints(
            Answers(
                self.metrics.exposition,
                self.report,
                lambda: None,
                self._unready,
                self.monitor.release,
                self._release_gpu,
                self.repair.give_back,
            ),
            settings.node_addresses,
        )
        self._scores = LinkScores(lambda: self.node_state.links, clock)
        own = GpuNodeWatch(self.repair, spread=spread, gone=reporter.gpunode_gone)
        for follower in (self.pods, self.watch, self.mig.evictor, self.dra, own):
            reporter.follow(follower)

    # Life

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set. Raises OSError where the agent cannot start, and Restart."""
        self.endpoints.bind(self._settings.metrics_address, self._settings.state_dir)
        sweep(self._settings.device_plugins_dir)
        await self.access.begin()
        await self.ask_holders_first()
        self._serve()
        works = {
            "device-plugin": self.manager.run(),
            "gpus": self.monitor.run(),
            "device-files": self.access.follow(self._serve),
            "pod-resources": self.holders.run(),
            "outside": self._open_up(),
            "checkpoint": self._files.run(),
            "link-scores": self._scores.run(),
            "mig": self.mig.run(),
            "repair": self.repair.run(),
            "claims": self.dra.run(),
            "telemetry": self.sampler.run(self.monitor),
        }
        tasks = [asyncio.create_task(work, name=name) for name, work in works.items()]
        ends = [asyncio.create_task(stop.wait()), asyncio.create_task(self._restart.wait())]
        try:
            done, _ = await asyncio.wait({*tasks, *ends}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            if self._restart.is_set():
                raise Restart
        finally:
            await self._end([*tasks, *ends])

    async def ask_holders_first(self) -> None:
        """Ask the kubelet who holds what, before the checkpoint's devices are offered, in whatever shape: a kill may
        have come before the files knew. A kubelet that does not answer is not waited for long: it gives nothing
        meanwhile.
        """
        if not self._start.advertises:
            return
        try:
            async with asyncio.timeout(HOLDERS_WITHIN_S):
                await self.holders.refresh()
        except (TimeoutError, grpc.aio.AioRpcError) as silent:
            log.info("kubelet does not report who holds devices yet", extra={"error": type(silent).__name__})

    async def _open_up(self) -> None:
        """Start what no pod waits for, when the devices are listed, or when there is nothing to list."""
        if self._settings.registration_socket is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LISTED_WITHIN_S):
                    await self._listed.wait()
                    await asyncio.sleep(LIST_FIRST_S)
        await self.endpoints.serve()
        await self._reporter.run()

    async def _end(self, tasks: Iterable["asyncio.Task[object]"]) -> None:
        self._alarm.set(None)
        tasks = [*tasks, *([] if self._asking is None else [self._asking])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(self.manager.close(), self.mps.close(), self.holders.close())
        await self._files.close()
        await self.endpoints.stop()
        log.info("stopped")

    def _node_changed(self) -> None:
        """Hear that the Node's labels or the GpuLayouts have changed."""
        if self.watch.labels is not None:
            self._renamed(self.watch.labels.get(CONFIG_LABEL))
            self.mig.labelled(self.watch.labels)
            self.repair.labelled(self.watch.labels)
        chosen = self.watch.chosen
        if chosen is None:
            return
        is_another = self._layout.heard(chosen)
        self.node_state.report("GpuLayouts", self._layout.problems)
        if is_another:
            choices = self._layout.choices
            log.info("layout", extra={"source": choices.gpu_layout.source})
            self.node_state.reconfigured(choices, self._clock())
            if self.node_state.awaits_holders:
                self._asking = asyncio.create_task(self._hear_holders())
            self.mig.wishes_changed(again=True)
            self.repair.reconfigured(*self._layout.remediated)
        self._serve()

    async def reconfigure(self, settings: Settings) -> None:
        """Take new settings into use; only what they change is touched."""
        self._settings = self._layout.settings = settings
        choices = self._layout.choices
        async with self.access.adopting:
            self.access.files.reconfigure(settings)
            self.node_state.access = await self.access.bring(self.node_state.node, choices.allocation)
            transitions = self.node_state.reconfigured(choices, self._clock())
        self.monitor.settings = choices.health
        if settings.metrics != self.sampler.settings:
            self.sampler.settings = settings.metrics
            self.sampler.nudge()
        self._reporter.reconfigure(settings)
        self._recorder.transitions(transitions)
        self.mig.reconfigured(settings.mig)
        self.repair.reconfigured(*self._layout.remediated)
        self.monitor.rescan()
        self._serve()
        if self.node_state.awaits_holders:
            await self._hear_holders()

    # -- events of the monitor (see monitor.MonitorListener)

    async def discovered(self, discovery: Discovery) -> None:
        node, now_s = discovery.node, self._clock()
        if self._start.found(node.driver_version):
            self._recorder.transitions(self.node_state.apply(BootChanged(), now_s))
        self.metrics.driver_up(up=True)
        async with self.access.adopting:
            access = await self.access.bring(node)
            differs = node != self.node_state.node
            self._recorder.transitions(self.node_state.discovered(node, access, now_s))
            if self.node_state.holders_unknown:
                await self._ask_holders()
            elif self.node_state.awaits_holders:
                self.holders.nudge()
        self.repair.discovered()
        if await self.mig.discovered():
            return  # layouts were restored: the GPUs are discovered anew before they are advertised
        self._scores.changed()
        await self._scores.begin()
        self._start.learn(Learned.ADOPTED)
        self._discovery_problems = discovery.problems
        if differs:
            self.holders.nudge()
            log.info("discovered", extra={"gpus": len(node.gpus), "driver": node.driver_version})
        self._serve()
        if differs or self.sampler.blank:
            self.sampler.nudge()

    async def _hear_holders(self) -> None:
        """Ask the kubelet for the holders, since a change of modes is decided from its present answer, and serve."""
        await self._ask_holders()
        self._serve()

    async def _ask_holders(self) -> None:
        """Ask the kubelet whether a container is on a GPU that is to be shared or cut: only the kubelet knows.

        ``holders`` asks a silent kubelet again, and the change waits. At the start, before the first answer, GPUs are
        not listed meanwhile, so the wait for a kubelet that runs is kept short: then the GPUs are taken for free. A
        kubelet that does not run gives nothing to anybody, and its pods may run on.
        """
        first = self.node_state.holders_unknown and not self._start.discovered
        if not self.node_state.awaits_holders:
            return
        try:
            async with asyncio.timeout(HOLDERS_WITHIN_S):
                await (self.holders.refresh() if first else self.holders.ask())
        except (TimeoutError, grpc.aio.AioRpcError) as silent:
            error = type(silent).__name__
            if not first or not self._kubelet_is_there:
                log.warning("kubelet does not report who holds devices: the change waits", extra={"error": error})
                self.holders.nudge()
                return
            log.warning("kubelet does not report who holds devices: assuming none are held", extra={"error": error})
            self._told_holders(self._clock())

    def health(self, event: Event) -> None:
        if isinstance(event, XidSeen):
            self.metrics.xid(event.gpu, event.xid)
            log.warning("xid", extra={"gpu": event.gpu, "xid": event.xid, "gi": event.gi, "ci": event.ci})
            self.sampler.xid(event.gpu, event.xid)
        self.mps.health(event)
        known = self.node_state.health.revision
        transitions = self.node_state.apply(event, self._clock())
        if transitions:
            self._recorder.transitions(transitions)
            self._serve()
        elif self.node_state.health.revision != known:
            self._publish()
        self.repair.heard(event)
        self._set_alarm()

    def at_ease(self, gpu: GpuUuid) -> bool:
        return self.node_state.health.state(gpu).state is HealthState.HEALTHY

    def driver_gone(self, reason: str) -> None:
        self._start.learn(Learned.NO_DRIVER)
        self._listed.set()
        self.metrics.driver_up(up=False)
        self.sampler.forget()
        log.warning("no driver: serving what is known, and waiting for it", extra={"error": reason})

    def released(self, seconds: float) -> None:
        self.metrics.driver_up(up=False)
        self.sampler.forget()
        log.info("NVML released", extra={"for_s": round(seconds, 1)})

    def driver_swapped(self, old: Versions, new: Versions) -> None:
        log.warning("the driver was changed: restarting", extra={"old": old.driver, "new": new.driver})
        self._restart.set()

    def _sampled(self, read: int, failed: int, duration_s: float) -> None:
        self.metrics.sampled(read, failed, duration_s)
        if read and self.endpoints.serving and self._start.learn(Learned.MEASURED):
            self._settled()

    # Out

    def _serve(self) -> None:
        """Carry a change of the node state to the kubelet first, since pods wait for it, then to API server and
        disk.
        """
        self.mps.planned()
        views = self.node_state.views() if self._start.advertises else ()
        self.manager.apply(views)
        if self._start.advertises:
            self.dra.planned()
            if not views:
                self._listed.set()
        if self._start.discovered:
            self._recorder.problems_are((*self._discovery_problems, *self.node_state.problems))
            self._recorder.note(self.node_state.layout.notes)
        self._files.changed()
        self._set_alarm()
        self._publish()

    def _granted(self, resource: ResourceName, devices: tuple[DeviceId, ...]) -> None:
        """Hear that Allocate gives these devices out: they are held from now on, whatever the kubelet listed last."""
        self.node_state.grants.granted(resource, devices, self._clock())
        if any(REPLICA_MARK in device for device in devices):
            self.mps.held()

    @property
    def _kubelet_is_there(self) -> bool:
        """Whether a kubelet takes registrations, or there is to be none."""
        socket = self._settings.registration_socket
        return socket is None or listens(socket)

    def _kubelet_listens(self) -> None:
        """Hear that the kubelet has begun to listen to a resource: after an absence it is asked for holders at once."""
        self._listed.set()
        self.holders.nudge()
        self._publish()

    def _holders(self) -> dict[DeviceId, Holder]:
        """The holder of each device, by plugin or by claim. A GPU given out by claim is in no resource."""
        return self.dra.holders() | self.holders.holders

    def _told_holders(self, began_s: float | None = None) -> bool:
        """Whether the holders known now let a waiting change of modes happen, or block it in another way. ``began_s``
        is when the kubelet was asked, None where it was not.
        """
        holders = self._holders()
        return self.node_state.held(holders, self._claimed_of(holders), began_s)

    def _by_kubelet(self) -> frozenset[DeviceId] | None:
        """The devices that containers have by claim, as the kubelet says; None where its last answer failed to come."""
        return self._claimed_of(self.holders.holders) if self.holders.reachable else None

    def _claimed_of(self, holders: Mapping[DeviceId, Holder]) -> frozenset[DeviceId]:
        return frozenset(device for device, holder in holders.items() if holder.resource == self._settings.dra_driver)

    async def _bring(self, gpu: GpuUuid, ready: Callable[[], bool], within_s: float) -> str:
        return await self.mig.bring(gpu, ready, within_s)

    def _by_claim(self) -> Sequence[DaemonSpec]:
        return self.dra.daemons()

    def _claims_changed(self) -> None:
        self.holders.nudge()
        self.mps.planned()
        self.mig.wishes_changed()
        self.repair.poke()
        if self._told_holders():
            self._serve()
        else:
            self._publish()

    def _held(self) -> None:
        self.pods.held(self.holders.holders)
        self.mps.held()
        held = self._told_holders(self.holders.began_s)
        self.mig.wishes_changed()
        self.repair.poke()
        if held:
            self._serve()
        else:
            self._publish()

    def _publish(self) -> None:
        probed = self._start.discovered
        self.node_state.unready = (self._unready() or "") if probed else node_words.not_probed()
        self._reporter.publish(self.node_state, self._holders())
        self.sampler.changed()
        self.metrics.states({report.uuid: HealthState(report.state) for report in device_reports(self.node_state)})
        self.metrics.mps(self.mps.states())
        self.metrics.claim_devices(self.dra.counts())
        self.metrics.devices(device_counts(self.node_state, self.holders.allocatable))

    def _gpus_text(self) -> bytes:
        return self.sampler.exposition()

    def _set_alarm(self) -> None:
        """Set the alarm for the next deadline of a health state: probation and the like end at a time, not at
        an event.
        """
        deadline_s = self.node_state.health.next_deadline_s()
        self._alarm.set(None if deadline_s is None else deadline_s - self._clock())

    def report(self) -> NodeReport:
        """The node's report for a person on the node (``tessera node``)."""
        return NodeReport(
            version=__version__,
            now_s=self._clock(),
            simulated=self._settings.simulate is not None,
            driver_up=self.monitor.session_open,
            node=self.node_state.node,
            resources=self.node_state.layout.resources,
            problems=self._recorder.problems,
            servers=self.manager.status(),
            health=device_reports(self.node_state),
            faults=open_faults(self.node_state),
            history=transitions(self.node_state),
            holders=held_devices(self._holders(), self.holders.sharers, self.dra.uses()),
            mps=self.mps.states(),
            mig=self.mig.statuses,
            by_claim=tuple(sorted(self.node_state.by_claim)),
            repairs=self.repair.repairs(),
            asks={shown.repair.gpu: shown.ask.action.value for shown in self.node_state.repairs if shown.ask},
            application_faults=self.node_state.culprits.counts(),
        )

    def _unready(self) -> str | None:
        if self._start.unready is not None or self.manager.ready:
            return self._start.unready
        registered = {status.resource for status in self.manager.status() if status.registered}
        waiting = [resource.name for resource in self.node_state.layout.resources if resource.name not in registered]
        return f"not registered with the kubelet: {', '.join(waiting)}" if waiting else "a resource is being withdrawn"

    # NVML and the disk

    async def _release_gpu(self, index: int, seconds: float, forced: bool) -> str:
        return await self.mig.release(index, seconds, forced=forced)

    def _driver(self, on_xid: Callable[[GpuUuid, XidEvent], None]) -> Driver:
        find_library = None if self._settings.simulate is not None else lambda: nvml_library(self._settings)
        lost = self.node_state.health.lost()
        return Driver(self._settings.node_name, self._settings.sys_root, on_xid, find_library, lost)

    def _restore(self) -> Checkpoint | None:
        checkpoint = statefiles.load_checkpoint(self._settings.state_dir, node_name=self._settings.node_name)
        if checkpoint is None:
            return None
        now_s, same_boot = self._clock(), checkpoint.is_of_boot(self._boot_id)
        self.node_state.culprits.restore(checkpoint.application_faults)
        self._recorder.transitions(self.node_state.health.restore(checkpoint.health, same_boot=same_boot, now_s=now_s))
        if not same_boot:
            return None
        self.node_state.discovered(checkpoint.node, self.access.files.access(checkpoint.node), now_s)
        log.info("serving from the checkpoint", extra={"gpus": len(checkpoint.node.gpus)})
        return checkpoint

    def _state_kept(self) -> None:
        """Hear that the state folder can be written, or cannot any more."""
        failed = self._files.failed
        if self.node_state.report(STATE, (node_words.no_state(failed),) if failed else ()):
            self._serve()

    def _known(self) -> Known | None:
        """The state that is worth keeping; None while nothing is known."""
        if self.node_state.node == NodeInventory(name=self._settings.node_name):
            return None
        return Known(
            checkpoint=Checkpoint(
                version=statefiles.VERSION,
                boot_id=self._boot_id,
                node=self.node_state.node,
                health=self.node_state.health.snapshot(),
                application_faults=self.node_state.culprits.counts(),
                energy_mj=dict(self._resets.energy_mj),
                mig_changes=dict(self.mig.changes),
            ),
            layout=LayoutState(modes=self.node_state.modes, object_layout=self._layout.object_layout),
        )
