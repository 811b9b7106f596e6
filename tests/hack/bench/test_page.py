"""What the page costs is measured on rows that are there."""

from hack.bench.decisions.forecast import crowded
from hack.bench.decisions.page import costs, node


def test_every_figure_of_the_page_is_measured() -> None:
    fleet = {f"node-{number}": node(number) for number in range(30)}
    rows = {row.what: row.measured for row in costs(crowded(2, 40), fleet)}
    assert len(rows) == 7
    assert all("0.00 MB, c" not in measured for measured in rows.values()), "something is sent"
