"""Whatever happens to the hardware, in whatever order, its invariants hold and only rules clear a fault."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from simulator.boards import faults, migstate
from simulator.boards.boards import Product
from simulator.boards.loads import Load
from simulator.boards.migprofiles import compute_profiles
from simulator.boards.migstate import MigError, MigState
from simulator.boards.products import PRODUCTS
from simulator.fleet import orders
from simulator.fleet.orders import Order
from simulator.hardware import hardware as hw
from simulator.hardware.hardware import Hardware

GPUS = 3

MIG_BOARDS = [product for product in PRODUCTS.values() if product.mig]

gpus = st.integers(0, GPUS - 1)
some_orders: st.SearchStrategy[Order] = st.one_of(
    st.builds(orders.Xid, gpu=gpus, xid=st.sampled_from([13, 31, 43, 45, 48, 63, 64, 74, 79, 94, 95, 119])),
    st.builds(orders.Xid, gpu=gpus, xid=st.sampled_from([48, 79, 94]), gi=st.integers(0, 3), ci=st.none() | st.just(0)),
    st.builds(orders.Ecc, gpu=gpus, uncorrected=st.integers(0, 5), corrected=st.integers(0, 5)),
    st.builds(orders.NvLinkDown, gpu=gpus, links=st.lists(st.integers(0, 11), max_size=3).map(tuple)),
    st.builds(orders.SetLoad, gpu=gpus, load=st.none() | st.just(Load(gpu=0, pid=1, sm_util=((0.0, 1.0),)))),
    *(
        st.builds(kind, gpu=gpus)
        for kind in (orders.Lost, orders.Remove, orders.Add, orders.RemapFailure, orders.Reset)
    ),
    st.builds(orders.Driver, up=st.booleans()),
    st.builds(orders.Slow, call=st.just("*"), seconds=st.sampled_from([0.0, 1.0]), gpu=st.none() | gpus),
)


def new() -> Hardware:
    return Hardware(
        node="n",
        identity="",
        load_identity="",
        boot_id="b",
        created=0.0,
        gpus=tuple(hw.GpuState(uuid=f"GPU-{i}", product="NVIDIA A100-SXM4-80GB", links=12) for i in range(GPUS)),
    )


def step(hardware: Hardware, order: Order, t: float) -> Hardware:
    try:
        return hw.apply(hardware, order, t)[0]
    except hw.OrderError:
        return hardware


@given(st.lists(some_orders, max_size=30))
def test_invariants_hold_and_survive_the_disk(history: list[Order]) -> None:
    hardware = new()
    for t, order in enumerate(history):
        hardware = step(hardware, order, float(t))
        hw.validate(hardware)
    assert msgspec.json.decode(msgspec.json.encode(hardware), type=Hardware) == hardware
    hw.validate(hw.reboot(hardware, boot_id="c", created=1.0))


@given(st.lists(some_orders, max_size=30))
def test_only_a_reset_ends_what_asks_for_one(history: list[Order]) -> None:
    hardware = new()
    for t, order in enumerate(history):
        after = step(hardware, order, float(t))
        for before, now in zip(hardware.gpus, after.gpus, strict=True):
            if now.epoch == before.epoch:
                assert now.recovery >= before.recovery
                assert now.lost >= before.lost
                assert now.ecc.volatile_uncorrected >= before.ecc.volatile_uncorrected
            else:
                assert now.epoch == before.epoch + 1
                assert (now.recovery, now.lost, now.ecc.volatile_uncorrected) == (faults.RECOVERY_NONE, False, 0)
            assert now.remap.failure >= before.remap.failure or not before.present
        hardware = after


@given(st.lists(some_orders, max_size=20), gpus)
def test_orders_for_one_gpu_touch_no_other(history: list[Order], index: int) -> None:
    hardware = new()
    for t, order in enumerate(history):
        after = step(hardware, order, float(t))
        if getattr(order, "gpu", index) not in (index, None):
            assert after.gpus[index] == hardware.gpus[index]
        hardware = after


@given(st.lists(some_orders, max_size=20))
def test_notices_name_the_epoch_that_listeners_registered(history: list[Order]) -> None:
    hardware = new()
    for t, order in enumerate(history):
        try:
            after, notices = hw.apply(hardware, order, float(t))
        except hw.OrderError:
            continue
        for notice in notices:
            assert notice.epoch == hardware.gpus[notice.gpu].epoch
            assert notice.gpu == getattr(order, "gpu", None)
        hardware = after


def mig_step(mig: MigState, board: Product, choice: int, pick: int, start: int | None) -> MigState:
    """One of the five things that NVML can do to instances, with whatever arguments."""
    gi = mig.instances[pick % len(mig.instances)] if mig.instances else None
    if choice == 0 or gi is None:
        return migstate.create_gpu_instance(mig, board, board.mig[pick % len(board.mig)], start)
    if choice == 1:
        return migstate.destroy_gpu_instance(mig, gi)
    slices = migstate.profile_of(board, gi).slices
    if choice == 2:
        profiles = compute_profiles(slices)
        profile = profiles[pick % len(profiles)]
        return migstate.create_compute_instance(mig, gi, profile, start, whole=slices)
    if gi.computes:
        return migstate.destroy_compute_instance(mig, gi, gi.computes[pick % len(gi.computes)])
    return mig


steps = st.tuples(st.integers(0, 3), st.integers(0, 20), st.none() | st.integers(0, 8))


@settings(max_examples=30)
@given(st.sampled_from(MIG_BOARDS), st.lists(steps, max_size=25))
def test_instances_never_overlap_and_never_exceed_their_count(
    board: Product, history: list[tuple[int, int, int | None]]
) -> None:
    mig = MigState(enabled=True, pending=True)
    for choice, pick, start in history:
        try:
            after = mig_step(mig, board, choice, pick, start)
        except MigError:
            continue
        migstate.validate(after, board)
        mig = after


@given(st.sampled_from(MIG_BOARDS), st.lists(st.integers(0, 20), max_size=10))
def test_remaining_capacity_is_what_can_then_be_created(board: Product, picks: list[int]) -> None:
    mig = MigState(enabled=True, pending=True)
    for pick in picks:
        profile = board.mig[pick % len(board.mig)]
        left = migstate.remaining(board, profile, mig.instances)
        try:
            mig = migstate.create_gpu_instance(mig, board, profile)
        except MigError:
            assert left == 0
        else:
            assert left > 0


@given(st.sampled_from(MIG_BOARDS), st.data())
def test_a_layout_is_found_exactly_where_placements_exist(board: Product, data: st.DataObject) -> None:
    """Fill a board at random placements: the same profiles, shuffled, must be laid out too."""
    mig = MigState(enabled=True, pending=True)
    for pick, where in data.draw(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 8)), max_size=8)):
        profile = board.mig[pick % len(board.mig)]
        try:
            mig = migstate.create_gpu_instance(mig, board, profile, profile.starts[where % len(profile.starts)])
        except MigError:
            continue
    names = [migstate.profile_of(board, gi).name for gi in mig.instances]
    laid = migstate.lay_out(board, tuple(data.draw(st.permutations(names))))
    migstate.validate(laid, board)
    assert sorted(migstate.profile_of(board, gi).name for gi in laid.instances) == sorted(names)


def test_a_removed_board_takes_only_being_added() -> None:
    hardware = hw.with_gpu(new(), 0, replace(new().gpus[0], present=False))
    assert step(hardware, orders.Reset(gpu=0), 1.0) == hardware
    assert step(hardware, orders.Add(gpu=0), 1.0).gpus[0].present
