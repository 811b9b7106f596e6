"""The page in Chromium, with rows that the controller's encoder makes of objects: every view, by eye, keyboard, reader.

``TESSERA_PICTURES=1`` writes a picture of each view into docs/pictures/; else a scene fails whose picture is stale.
"""

import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from controller.objects.decode import GpuNode, decode
from controller.objects.queues import ClusterQueue, Cohort, ResourceFlavor
from controller.scheduler.model.resources import ClusterQueueName
from inventory.api.gpunode import GrantEntry, Health, RepairEntry
from inventory.api.names import INTERRUPTION_RATE, QUOTA_CALENDAR
from tests.support.page.browser import TREE, Browser, chromium
from tests.support.page.objects import GPU, NOW, workload
from tests.support.page.pictures import picture
from tests.support.page.standin import StandIn
from tests.support.page.state import EVIL, State, made

pytestmark = pytest.mark.e2e

WIDE, PHONE = (1440, 900), (390, 844)
FAULT = "XID 94: contained"
USABLE_S = 2.0
"""From the request to a fleet of 1,000 nodes that answers to a key, with 10,000 workloads."""


def addresses(state: State) -> dict[str, tuple[str, str]]:
    """Each view's address and a text that it shows once its data is there."""
    pending, workloads = state.rows("pending"), state.rows("workloads")
    waiting = next(row for row in pending if not row["hidden"] and state.foretold(row["workload"]).changes)
    running = max((row for row in workloads if not row["hidden"] and row["running"]), key=lambda row: row["nodeCount"])
    starting = next(row for row in workloads if not row["hidden"] and row["running"] is False)
    fleet = state.rows("fleet")
    faulty = next(node for node in fleet if any(gpu["reasons"] for gpu in node["gpus"]))
    cut = next(node for node in fleet if node["gpus"][0]["mode"] == "mig")
    return {
        "fleet": ("#/fleet", "Out of service"),
        "fleet-busy": (f"#/fleet?by=busy&node={cut['name']}", "All about this node"),
        "fleet-table": ("#/fleet?view=table", "of 8 in use"),
        "queues": ("#/queues", "weight 2"),
        "queue": ("#/queues/research", "May borrow"),
        "pending": ("#/pending", "Expected start"),
        "holding-quota": ("#/workloads", "Holds"),
        "workload-pending": (f"#/workloads/{waiting['workload']}", "What would start it now"),
        "workload-running": (f"#/workloads/{running['workload']}", "Where its pods are"),
        "workload-starting": (f"#/workloads/{starting['workload']}", "Pods that run: 0 of"),
        "waste": ("#/waste", "Held and idle, the longest first"),
        "what-if": ("#/whatif?kind=quota", "Move a quota first"),
        "node": (f"#/nodes/{faulty['name']}", "What to do: TesseraGpuXid"),
        "gpu": (f"#/nodes/{cut['name']}/gpus/0", "3g.40gb"),
    }


STATE = made(nodes=192, workloads=900)
VIEWS = addresses(STATE)


@pytest.fixture(scope="module")
def server() -> Iterator[StandIn]:
    with StandIn(STATE).running() as server:
        yield server


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture
def browser(window: Browser, server: StandIn) -> Browser:
    """A wide, light window at the fleet."""
    window.errors()
    window.size(*WIDE)
    window.media(prefers_color_scheme="light")
    window.open("about:blank")
    window.open(server.url)
    window.until_text("1,536")
    return window


@pytest.mark.parametrize("name", VIEWS)
def test_every_view_has_its_data_and_no_barrier(browser: Browser, name: str) -> None:
    address, wanted = VIEWS[name]
    for scheme in ("light", "dark"):
        browser.media(prefers_color_scheme=scheme)
        browser.go(address)
        browser.until_text(wanted)
        assert browser.violations() == [], scheme
        if scheme == "light" or name == "fleet":
            picture(browser, f"page-{name}{'-dark' if scheme == 'dark' else ''}")
    browser.size(*PHONE, phone=True)
    browser.until_text(wanted)
    assert browser.violations() == []
    assert browser.js("return document.documentElement.scrollWidth") <= PHONE[0], "it is wider than a phone"
    if name in ("fleet", "workload-pending"):
        picture(browser, f"page-{name}-phone")
    assert browser.errors() == []


def test_each_queue_stands_below_its_cohort_and_what_is_above_is_the_sum(browser: Browser) -> None:
    browser.go("#/queues")
    browser.until_text("never lent")
    rows = [(int(depth), str(kind), str(name), used, quota) for depth, kind, name, used, quota in browser.js(TREE)]
    assert [row[:3] for row in rows[:4]] == [
        (0, "cohort", "all"),
        (1, "cohort", "online"),
        (2, "queue", "production"),
        (1, "cohort", "science"),
    ]
    assert len(rows) == len(STATE.rows("queues"))
    for at, (depth, kind, name, *amounts) in enumerate(rows):
        if kind == "cohort":
            ends = (end for end, row in enumerate(rows) if end > at and row[0] <= depth)
            below = rows[at + 1 : next(ends, len(rows))]
            members = [row[3:] for row in below if row[0] == depth + 1]
            assert amounts == [sum(each) for each in zip(*members, strict=True)], name
    browser.go("#/queues/production")
    browser.until(lambda: re.search("Queues\\W+all\\W+online\\W+Open", browser.text()), "the cohorts above it")


FIGURES = """
return Object.fromEntries([...document.querySelectorAll("dl.figures .figure")].map((each) => [
  each.querySelector("dt").textContent,
  [each.querySelector("b").textContent, each.querySelector("span")?.textContent ?? ""]
    .map((text) => parseInt(text.replaceAll(",", ""))),
]));
"""
"""Of each figure of a view its number and that of its note, by its name."""
LEGEND = """
return Object.fromEntries([...document.querySelectorAll(".map-panel .legend li")].map((each) => [
  each.querySelector(".swatch").className.split("is-")[1],
  parseInt(each.querySelector("b")?.textContent.replaceAll(",", "") ?? "0"),
]));
"""
WAITING_AND_RUNNING = """
const all = [...document.querySelectorAll("table.tree tbody tr")];
const rows = all.filter((row) => row.querySelector("th").dataset.depth === "0");
const sum = (at) => rows.reduce((total, row) => total + parseInt(row.children[at].innerText.replaceAll(",", "")), 0);
return [sum(9), sum(8)];
"""


def test_a_number_that_two_views_show_is_one_number(browser: Browser) -> None:
    def seen(address: str, wanted: str) -> dict[str, list[int]]:
        browser.go(address)
        browser.until_text(wanted)
        found: dict[str, list[int]] = browser.js(FIGURES)
        return found

    fleet = seen("#/fleet", "Out of service")
    legend: Counter[str] = Counter(browser.js(LEGEND))
    assert fleet["GPUs"][0] == sum(legend.values()) == 192 * 8
    assert fleet["In use"][1] == legend["held"] + legend["idle"]
    assert (fleet["Free"][0], fleet["Held, idle"][0]) == (legend["free"], legend["idle"])
    assert fleet["Out of service"][0] == legend["fault"]
    waste = seen("#/waste", "Held by nobody")
    assert waste["Held by nobody"][0] == legend["free"] + legend["off"]
    assert waste["Held, idle"][0] >= legend["idle"], "of a GPU that is shared each holder is told"
    waiting = seen("#/pending", "Longest wait")["Waiting"][0]
    running = seen("#/workloads", "devices together")["Running"][0]
    browser.go("#/queues")
    browser.until_text("never lent")
    assert browser.js(WAITING_AND_RUNNING) == [waiting, running]
    assert int(browser.text('nav a[href="#/pending"] small')) == waiting


def test_one_failed_gpu_counts_as_one_wherever_it_is_counted(browser: Browser, server: StandIn) -> None:
    name = next(row["name"] for row in STATE.rows("fleet") if all(gpu["state"] == "held" for gpu in row["gpus"]))
    before = STATE.gpu_nodes[name]
    fleet = Counter(gpu["state"] for row in STATE.rows("fleet") for gpu in row["gpus"])
    faults = ("XID 79: fallen off the bus", "XID 94: contained", "row remapping failed")
    failed = msgspec.structs.replace(before.status.devices[2], health=Health(state="Unhealthy", reasons=faults))
    status = msgspec.structs.replace(
        before.status,
        devices=(*before.status.devices[:2], failed, *before.status.devices[3:]),
        observed_at=datetime.now(UTC),
    )
    server.change(lambda state: state.gpu_nodes.update({name: msgspec.structs.replace(before, status=status)}))
    try:
        browser.go(f"#/nodes/{name}")
        browser.until_text("1 GPU out of service")
        browser.until_text("3 open faults on 1 GPU")
        text = browser.text("main")
        assert "7 of 8" in text
        assert "Out of service, with all links: GPU 2" in text
        assert browser.js('return document.querySelectorAll(".fabric line.down").length') == 7
        offered = browser.js(
            'return [...document.querySelectorAll("table.small td.number")].map((at) => at.textContent)'
        )
        assert offered == ["8", "7"]
        browser.go("#/fleet")
        browser.until_text("Out of service")
        shown = browser.js(
            'return Object.fromEntries([...document.querySelectorAll(".map-panel .legend li")]'
            '.map((at) => [at.querySelector(".swatch").className.split("is-")[1], at.querySelector("b")?.textContent]))'
        )
        assert int(shown["fault"]) == fleet["fault"] + 1
        figures = browser.text("dl.figures")
        assert f"Out of service\n{fleet['fault'] + 1}" in figures
    finally:
        server.change(lambda state: state.gpu_nodes.update({name: before}))


def in_repair(before: GpuNode) -> GpuNode:
    """GPUs 0 to 4 in as many states of a repair, and one that is not in the node any more."""
    uuids = [device.uuid for device in before.status.devices]
    at = datetime.fromtimestamp(NOW, UTC)
    long = "XID 119: the GSP firmware did not answer; the same fault came 5 times within 86400 s"

    def entry(gpu: str, state: str, minutes: float, **more: Any) -> RepairEntry:
        since, began = at - timedelta(minutes=minutes), at - timedelta(minutes=3 * minutes)
        return RepairEntry(gpu=gpu, state=state, since=since, fault_since=began, cause=long, **more)

    held = "held by team-ml/pretrain-0-abcdef, team-ml/pretrain-1-abcdef, process 4711 (python3)"
    repairs = (
        entry(uuids[0], "Draining", 5, asks="drain", generation=1, note=held, next="the pods leave once it is granted"),
        entry(uuids[1], "Draining", 2, asks="reset", generation=4, note="nobody has it", next="it is reset"),
        entry(uuids[2], "Verifying", 0.1, attempt=2, note="was reset", next="then it is on probation"),
        entry(uuids[3], "RebootWanted", 90, attempt=2, note="2 resets failed", next="reboot the node"),
        entry(uuids[4], "Retired", 3000, note="too often", next="a person gives it back"),
        entry("GPU-99999999-0000-0000-0000-000000000000", "Probation", 1, attempt=1, note="as before", next="service"),
    )
    grant = GrantEntry(gpu=uuids[1], generation=4, action="reset", granted=at - timedelta(seconds=50))
    ill = [msgspec.structs.replace(each, health=Health(state="Unhealthy")) for each in before.status.devices[:5]]
    devices = (*ill, *before.status.devices[5:])
    status = msgspec.structs.replace(
        before.status, devices=devices, repairs=repairs, remediation_grants=(grant,), observed_at=datetime.now(UTC)
    )
    return msgspec.structs.replace(before, status=status)


STEPS_OF_REPAIRS = """
return [...document.querySelectorAll("ol.timeline")].map((line) =>
  [...line.querySelectorAll("li")].map((step) => step.querySelector("b").textContent));
"""
OVERLAPS = """
const boxes = (line, name) => [...line.querySelectorAll(name)].map((each) => each.getBoundingClientRect());
const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
return [...document.querySelectorAll("ol.timeline li")].filter((step) => {
  const [title, ...others] = boxes(step, "b, .when, p + p");
  return others.some((other) => meet(title, other));
}).map((step) => step.innerText);
"""


@pytest.mark.parametrize("width", [1280, 400])
def test_repairs_are_read_from_the_fault_to_what_comes_next_at_every_width(
    browser: Browser, server: StandIn, width: int
) -> None:
    name = next(row["name"] for row in STATE.rows("fleet") if all(gpu["state"] == "held" for gpu in row["gpus"]))
    before = STATE.gpu_nodes[name]
    server.change(lambda state: state.gpu_nodes.update({name: in_repair(before)}))
    try:
        browser.size(width, 900, phone=width < 600)
        browser.go(f"#/nodes/{name}")
        browser.until_text("6 GPUs in repair")
        steps = browser.js(STEPS_OF_REPAIRS)
        assert steps == [
            ["Fault", "Draining", "Asks for a drain", "Next"],
            ["Fault", "Draining", "Reset granted", "Next"],
            ["Fault", "Verifying, attempt 2", "Next"],
            ["Fault", "Reboot wanted, attempt 2", "Next"],
            ["Fault", "Retired", "Next"],
            ["Fault", "Probation, attempt 1", "Next"],
        ]
        assert browser.js(OVERLAPS) == []
        assert browser.js("return document.documentElement.scrollWidth") <= width
        assert browser.violations() == []
        assert browser.errors() == []
    finally:
        server.change(lambda state: state.gpu_nodes.update({name: before}))


def test_a_fault_is_shown_and_said_as_soon_as_it_is_told(browser: Browser, server: StandIn) -> None:
    browser.go("#/fleet?node=node-3")
    browser.until_text("GPU 7", "aside")
    before = STATE.gpu_nodes["node-3"]
    try:
        # What is said of changes is said at most every five seconds: the first look at the fleet is one of them.
        browser.until(lambda: told_after_a_fault(browser, server, before), "a live region names the GPU", 30)
        assert FAULT in browser.text("aside")
    finally:
        server.change(lambda state: state.gpu_nodes.update({"node-3": before}))
    browser.until(lambda: FAULT not in browser.text("aside"), "the fault is gone again")


def told_after_a_fault(browser: Browser, server: StandIn, before: GpuNode) -> bool:
    """Each time the node is told anew, with the fault: what is said is made of what comes."""
    faulty = msgspec.structs.replace(before.status.devices[5], health=Health(state="Unhealthy", reasons=(FAULT,)))
    devices = (*before.status.devices[:5], faulty, *before.status.devices[6:])
    status = msgspec.structs.replace(before.status, devices=devices, observed_at=datetime.now(UTC))
    server.change(lambda state: state.gpu_nodes.update({"node-3": msgspec.structs.replace(before, status=status)}))
    return "node-3 GPU 5 failed" in browser.text("#told")


def test_after_a_break_the_page_goes_on_by_itself(browser: Browser, server: StandIn) -> None:
    server.cut()
    came = workload("came-after-the-break", "research", 64)
    server.change(lambda state: state.take(came))
    try:
        browser.go("#/pending?q=came-after")
        browser.until_text("came-after-the-break")
        browser.until_text("Live", ".foot")
    finally:
        server.change(lambda state: state.drop(came))


def test_who_is_signed_in_is_told_once_the_server_has_time(browser: Browser, server: StandIn) -> None:
    server.busy = 1
    browser.open("about:blank")
    browser.open(server.url)
    browser.until_text("alice", ".who")
    assert server.busy == 0


@pytest.mark.parametrize("name", ["app.js", "vendor/lit-html/directives/repeat.js", "style.css"])
def test_a_page_of_which_a_file_could_not_be_read_is_read_again(browser: Browser, server: StandIn, name: str) -> None:
    server.refused.add(name)
    browser.open("about:blank")
    browser.open(server.url)
    browser.until_text("It is read again", "body")
    browser.until_text("1,536")
    assert not server.refused


def test_the_map_is_walked_and_opened_by_keys_and_read_aloud(browser: Browser) -> None:
    browser.go("#/fleet")
    browser.js("document.querySelector('fleet-map canvas').focus()")
    press(browser, "ArrowRight")
    first = browser.text("fleet-map .said")
    assert first.startswith("node-0 GPU 1, block-1, rack-1: ")
    press(browser, "ArrowDown")
    assert browser.text("fleet-map .said") != first
    press(browser, "Enter")
    browser.until_text("All about this node", "aside")
    assert "node=node-" in browser.js("return location.hash")


def test_a_long_list_has_few_rows_in_the_document_and_is_walked_by_keys(browser: Browser) -> None:
    browser.go("#/pending")
    browser.until_text("Why it waits")
    rows = "return document.querySelectorAll('virtual-table tbody tr[tabindex]').length"
    assert 5 < browser.js(rows) < 60
    browser.js("document.querySelector('virtual-table tr[tabindex=\"0\"]').focus()")
    for key in ("End", "ArrowUp", "Home", "PageDown", "ArrowDown"):
        press(browser, key)
    at = int(browser.js("return document.activeElement.dataset.at"))
    assert at > 3
    press(browser, "End")
    assert int(browser.js("return document.activeElement.dataset.at")) == len(STATE.rows("pending")) - 1


def press(browser: Browser, key: str) -> None:
    for kind in ("keyDown", "keyUp"):
        code = {"Enter": 13}.get(key, 0)
        text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
        browser.driver.execute_cdp_cmd(
            "Input.dispatchKeyEvent", {"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code} | text
        )


def test_what_is_chosen_stands_in_the_address_and_leads_back_to_it(browser: Browser) -> None:
    browser.js("document.querySelector('input[name=colour][value=queue]').click()")
    search = "const field = document.querySelector('input[type=search]'); field.value = arguments[0];"
    browser.js(search + "field.dispatchEvent(new Event('input', {bubbles: true}))", "block-2 rack-1")
    browser.until_text("8 nodes of 192 match")
    address = browser.driver.current_url
    browser.open("about:blank")
    browser.open(address)
    browser.until_text("8 nodes of 192 match")
    assert browser.js("return document.querySelector('input[name=colour]:checked').value") == "queue"


def test_what_if_shows_the_outcome_beside_the_present_and_the_server_s_refusal(browser: Browser) -> None:
    browser.go("#/whatif")
    submit = "document.querySelector('form button[type=submit]').click()"
    browser.js(submit)
    browser.until_text("needs 16, 4 free")
    assert "+4" in browser.text(".compare")
    fill = "const field = document.querySelector('textarea'); field.value = 'nonsense';"
    browser.js(fill + "field.dispatchEvent(new Event('input', {bubbles: true}))")
    browser.js(submit)
    browser.until_text("line 1: found nonsense")


def test_where_no_prometheus_has_the_past_the_page_says_so(browser: Browser) -> None:
    browser.go(VIEWS["workload-running"][0])
    browser.until_text("History is not recorded")


def test_a_queue_says_which_window_of_its_calendar_holds_until_when_and_which_comes_next(window: Browser) -> None:
    """It is 14:13 UTC. The queue has 40 GPUs from nine in the morning, its cohort more at night."""
    state = made(nodes=8, workloads=30)
    gpus = {"h100": {GPU: 40}}
    by_day = [{"from": "0 9 * * *", "for": "10h", "nominal": gpus}]
    by_night = [{"from": "0 20 * * mon-fri", "for": "8h", "zone": "UTC", "nominal": gpus}]
    flavors = [{"name": "h100", "resources": [{"name": GPU, "nominalQuota": "0"}]}]
    none = {"resourceGroups": [{"coveredResources": [GPU], "flavors": flavors}]}
    dated: list[tuple[ClusterQueue | Cohort, list[dict[str, Any]]]] = [
        (state.engine.state.cluster.queues[ClusterQueueName("research")].object, by_day),
        (decode({"metadata": {"name": "science"}, "spec": {"parentName": "all", **none}}, Cohort), by_night),
    ]

    def give(to: State, begin: int, end: int) -> None:
        for given, entries in dated[begin:end]:
            annotations = {QUOTA_CALENDAR: msgspec.json.encode(entries).decode()}
            metadata = msgspec.structs.replace(given.metadata, annotations=annotations)
            to.engine.put(msgspec.structs.replace(given, metadata=metadata), NOW)
        to.settle()

    now = 'ClusterQueue research has the quota of its calendar\'s window "0 9 * * *" UTC until 2026-09-21 19:00 UTC'
    coming = 'the next window of its calendar, "0 20 * * mon-fri" UTC, begins 2026-09-21 20:00 UTC'
    later = f"Cohort science has its own quota; {coming}"
    with StandIn(state).running() as server:
        window.size(*WIDE)
        window.errors()
        window.open(f"{server.url}#/queues/research")
        window.until_text("May borrow")
        assert "calendar" not in window.text()
        server.change(lambda to: give(to, 0, 1))
        window.until_text(now)
        assert re.search(r"nvidia.com/gpu\s+\d+\s+40\s", window.text()), "and the quota beside it is that of the window"
        assert "Cohort science" not in window.text()
        server.change(lambda to: give(to, 1, 2))
        window.until_text(f"{now}. {later}")
        assert window.violations() == []
        window.go("#/queues")
        window.until_text("by calendar")
        marked = dict(window.js(CALENDARS))
        assert marked["science"] == later
        assert marked["research"] == f"{now}. {later}"
        assert "production" not in marked, "it is in another cohort"
        assert window.errors() == []


def test_a_queue_says_how_often_the_nodes_of_its_flavors_are_taken_away(window: Browser) -> None:
    state = made(nodes=8, workloads=30)
    spec = {"nodeLabels": {"gpu": "yes"}, "topologyName": "dc"}

    def mark(to: State, **notes: str) -> None:
        to.engine.put(decode({"metadata": {"name": "h100", "annotations": notes}, "spec": spec}, ResourceFlavor), NOW)
        to.settle()

    with StandIn(state).running() as server:
        window.errors()
        window.open(f"{server.url}#/queues/research")
        window.until_text("May borrow")
        assert "taken away" not in window.text()
        server.change(lambda to: mark(to, **{INTERRUPTION_RATE: "0.40"}))
        window.until_text("Nodes of flavor h100 are taken away 0.4 times per node-day")
        assert window.violations() == []
        assert window.errors() == []


CALENDARS = """
return [...document.querySelectorAll("small[title]")].filter((each) => each.textContent === "by calendar")
  .map((each) => [each.closest("th").querySelector("a, span").textContent, each.title]);
"""
"""The names of the queues and cohorts that a calendar changes, each with what it says on hovering."""


def test_who_is_not_signed_in_gets_a_form_and_then_the_view_that_was_asked_for(window: Browser) -> None:
    with StandIn(made(nodes=2, workloads=6), signed_in=False).running() as server:
        window.open(f"{server.url}#/queues/research")
        window.until_text("Sign in by Company login")
        assert window.violations() == []
        picture(window, "page-sign-in")
        for token, wanted in (("wrong", "does not know this token"), ("right", "May borrow")):
            window.js("document.getElementById('token').value = arguments[0]", token)
            window.js("document.querySelector('form button').click()")
            window.until_text(wanted)


def test_while_the_server_is_away_every_button_says_so_and_signing_out_empties_the_screen(window: Browser) -> None:
    window.size(*WIDE)
    window.errors()
    state = made(nodes=4, workloads=12)
    with StandIn(state).running() as server:
        window.open(f"{server.url}#/fleet")
        window.until_text("Free")
    window.until_text("Reconnecting", ".foot")
    waiting = next(row["workload"] for row in state.rows("pending") if not row["hidden"])
    for address in ("#/waste", "#/nodes/node-0", "#/queues/research", f"#/workloads/{waiting}"):
        window.go(address)
        window.until_text("cannot be reached")
    window.go("#/whatif")
    window.js("document.querySelector('form button[type=submit]').click()")
    window.until_text("cannot be reached")
    window.js("for (const button of document.querySelectorAll('.foot button:first-child')) button.click()")
    window.js("document.querySelector('button[aria-label=\"Sign out\"]').click()")
    window.until_text("Signed out")
    assert "it may still hold the session until" in window.text()
    shown = window.text("body")
    assert not any(word in shown for word in ("alice", "research", "Fleet", waiting.rpartition("/")[2]))
    assert [error for error in window.errors() if "Uncaught" in error] == []


def test_nothing_that_is_told_becomes_html(window: Browser) -> None:
    state = made(nodes=12, workloads=60, mark=EVIL)
    with StandIn(state, mark=EVIL).running() as server:
        window.size(*WIDE)
        window.errors()
        for shape in ("map", "table"):
            window.open(f"{server.url}#/fleet?node=node-4{EVIL}&view={shape}".replace("<", "%3C").replace(" ", "%20"))
            window.until_text("<script>", "aside")
        for address in ("#/queues", "#/queues/research", "#/pending", "#/workloads", "#/waste"):
            window.go(address)
            window.until_text("team-" if address == "#/waste" else "research")
        for topic in ("pending", "workloads"):
            key = next(each["workload"] for each in state.rows(topic) if not each["hidden"])
            namespace, _, name = key.partition("/")
            window.js(
                "location.hash = '#/workloads/' + arguments[0] + '/' + encodeURIComponent(arguments[1])",
                namespace,
                name,
            )
            window.until_text("<script>", "h1")
            window.until_text("Story")
        for name in state.gpu_nodes:
            window.js("location.hash = '#/nodes/' + encodeURIComponent(arguments[0])", name)
            window.until_text("cannot be cut<img")
        window.go("#/whatif")
        window.js("document.querySelector('form button[type=submit]').click()")
        window.until_text("fits now<img")
        assert window.js(
            "return [window.harmed ?? null, document.querySelectorAll('main img, main script').length]"
        ) == [None, 0]
        assert window.errors() == []


TIMED = """
const begin = () => {
  const map = document.querySelector("fleet-map");
  const figure = document.querySelector(".figure b")?.innerText;
  const waiting = document.querySelector("nav small")?.innerText;
  if (map?.map?.cells.length === 1000 && figure === "8,000" && waiting) {
    map.canvas.focus();
    map.pressed({key: "ArrowRight", preventDefault() {}});
    if (map.said.textContent) requestAnimationFrame(() => { window.usableS = performance.now() / 1000; });
    return;
  }
  requestAnimationFrame(begin);
};
requestAnimationFrame(begin);
"""


@pytest.mark.alone("two seconds are a promise, and the best of three looks is late beside two other files")
def test_a_thousand_nodes_and_ten_thousand_workloads_are_usable_in_two_seconds(window: Browser) -> None:
    """The best of three: what else runs on the machine is no part of it, nor is the first look at all objects, which is
    made once for all who look.
    """
    with StandIn(made(nodes=1000, workloads=10_000)).running() as server:
        window.size(*WIDE)
        window.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": TIMED})
        taken_s = []
        for _ in range(3):
            window.open("about:blank")
            window.open(server.url)
            taken_s.append(window.until(lambda: window.js("return window.usableS ?? null"), "the map answers to a key"))
        print(f"usable after {min(taken_s):.2f} s (of {', '.join(f'{each:.2f}' for each in taken_s)})")  # noqa: T201
        picture(window, "page-thousand-nodes")
        assert min(taken_s) < USABLE_S
        shown = """
            const begun = performance.now();
            location.hash = "#/pending";
            return new Promise((done) => { const look = () => document.querySelector("virtual-table tr[tabindex]")
              ? done((performance.now() - begun) / 1000) : requestAnimationFrame(look); look(); });"""
        assert window.js(shown) < USABLE_S / 2
