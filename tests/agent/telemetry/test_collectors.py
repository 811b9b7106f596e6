"""dcgm-exporter's collectors file is read as it is; mistakes name their line."""

from pathlib import Path

import pytest

from agent.telemetry.collectors import USUAL, parse, read
from agent.telemetry.fields import FieldKind
from agent.telemetry.legacy import LEGACY
from tests.support.agent import dcgm_exporter as peer
from yamlfile import ConfigError

PEERS = Path(__file__).with_name("dcgm_exporter_files")
"""Its collectors files: names and types as it ships them, with our helps."""

FILE = """\
# Format
# If line starts with a '#' it is considered a comment
# DCGM FIELD, Prometheus metric type, help message

# Clocks
DCGM_FI_DEV_SM_CLOCK,  gauge, SM clock frequency (in MHz).
  # an indented comment
DCGM_FI_DEV_PCIE_REPLAY_COUNTER,            counter, Total number of PCIe retries.
DCGM_FI_PROF_DRAM_ACTIVE, gauge, "Ratio of cycles, with a comma."

DCGM_FI_DRIVER_VERSION, label, Driver Version
DCGM_EXP_XID_ERRORS_COUNT, counter, Count of XID Errors within user-specified time window
DCGM_FI_DEV_SOMETHING_OF_TOMORROW, gauge, Who knows
"""


def test_a_file_of_the_peers_is_taken_as_it_is() -> None:
    found = parse(FILE, "counters.csv")
    assert [(field.name, field.kind.value, field.help) for field in found.fields] == [
        ("DCGM_FI_DEV_SM_CLOCK", "gauge", "SM clock frequency (in MHz)."),
        ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "counter", "Total number of PCIe retries."),
        ("DCGM_FI_PROF_DRAM_ACTIVE", "gauge", "Ratio of cycles, with a comma."),
        ("DCGM_FI_DRIVER_VERSION", "label", "Driver Version"),
        ("DCGM_EXP_XID_ERRORS_COUNT", "counter", "Count of XID Errors within user-specified time window"),
    ]
    assert found.labels == ("DCGM_FI_DRIVER_VERSION",)
    assert [line.partition(" as a ")[0] for line in found.missing] == [
        "counters.csv:13: DCGM_FI_DEV_SOMETHING_OF_TOMORROW",
    ]


def test_a_quoted_help_is_taken_as_it_stands() -> None:
    text = (
        'DCGM_FI_DEV_GPU_UTIL, gauge, "a  b, ""c""\n# no comment"\r\nDCGM_FI_DEV_FB_USED, gauge, d\u2028e\x0bf "g"\r\n'
    )
    assert [field.help for field in parse(text, "f").fields] == ['a  b, "c"\n# no comment', 'd\u2028e\x0bf "g"']


def test_the_type_is_the_files_own() -> None:
    assert parse("DCGM_FI_DEV_GPU_UTIL, counter, odd\n", "f").series[0].kind is FieldKind.COUNTER


GOOD = "DCGM_FI_DEV_FB_FREE, gauge, x\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# a\nDCGM_FI_DEV_GPU_UTIL, gauge\n", "f:2: found 2 columns, expected FIELD, type, help"),
        ("\n\nDCGM_FI_DEV_GPU_UTIL, gauge, one, two\n", "f:3: found 4 columns"),
        (
            "DCGM_FI_DEV_GPU_UTIL, guage, x\n",
            "f:1: DCGM_FI_DEV_GPU_UTIL: found 'guage', expected gauge, counter or label",
        ),
        ("GPU_UTIL, gauge, x\n", "f:1: GPU_UTIL: found no field of DCGM's"),
        ("dcgm_gpu_utilisation, gauge, x\n", "f:1: dcgm_gpu_utilisation: found no field of DCGM's"),
        ("dcgm_gpu_utilization, label, x\n", "f:1: dcgm_gpu_utilization: found 'label', expected gauge or counter"),
        ('\nDCGM_FI_DEV_GPU_UTIL, gauge, "open\n', "f:2: found unexpected end of data, expected FIELD, type, help"),
        ('DCGM_FI_DEV_GPU_UTIL, gauge, "x" y\n', "f:1: found ',' expected after '\"'"),
        ('DCGM_FI_DEV_FB_USED, guage, "a\nb"\n', "f:1: DCGM_FI_DEV_FB_USED: found"),
        ("DCGM_FI_DEV_GPU_UTIL, gauge, \udcff\n", "f:1: found bytes that are no text, expected UTF-8"),
    ],
)
def test_a_line_that_cannot_be_taken_is_refused_alone(text: str, message: str) -> None:
    for whole in (text + GOOD, GOOD + text):
        found = parse(whole, "f")
        assert [field.name for field in found.fields] == ["DCGM_FI_DEV_FB_FREE"]
        assert len(found.refused) == 1
    assert parse(text + GOOD, "f").refused[0].startswith(message)


def test_a_field_that_comes_again_counts_as_it_came_first() -> None:
    found = parse("DCGM_FI_DEV_GPU_UTIL, gauge, x\nDCGM_FI_DEV_GPU_UTIL, counter, y\n", "f")
    assert [(field.kind.value, field.help) for field in found.fields] == [("gauge", "x")]
    assert found.refused == ("f:2: DCGM_FI_DEV_GPU_UTIL: found the field a second time, expected each field once",)


def test_of_a_file_that_is_none_the_telling_is_bounded() -> None:
    found = parse(GOOD + "x, gauge, y\n" * 100, "f")
    assert found.refused[-1] == "f: 84 more lines"
    assert len(found.refused) == 17
    broken = parse(GOOD + 'a"b, "c"d\n' * 1000, "f")
    assert [field.name for field in broken.fields] == ["DCGM_FI_DEV_FB_FREE"]
    assert len(broken.refused) == 17


def test_where_no_line_can_be_taken_there_is_nothing_to_go_by() -> None:
    for text, why in (("# nothing\n", "gives, expected"), ("\nGPU_UTIL, gauge, x\n", "gives \\(f:2: GPU_UTIL: found")):
        with pytest.raises(ConfigError, match=f"^f: found no field that NVML {why}"):
            parse(text, "f")


def test_the_peers_file_of_old_names_is_taken_as_it_is_with_the_new_names_beside() -> None:
    found = read(PEERS / "1.x-compatibility-metrics.csv")
    assert (found.missing, found.refused) == ((), ())
    old = [field for field in found.fields if field.of]
    assert len(old) == 22
    assert all(field.of in {one.name for one in found.fields} for field in old)
    assert {field.of: field.name for field in old} == found.beside


def test_every_old_name_of_the_peer_is_known_those_in_comments_too() -> None:
    text = (PEERS / "1.x-compatibility-metrics.csv").read_text().replace("# dcgm_", "dcgm_")
    found = parse(text, "f")
    assert found.refused == ()
    assert {field.name for field in found.fields if field.of} == LEGACY.keys()


def test_the_peers_default_file_is_taken_with_every_line_switched_on() -> None:
    lines = (PEERS / "default-counters.csv").read_text().replace("# DCGM_", "DCGM_")
    found = parse(lines, "f")
    assert found.refused == ()
    assert [line.split(": ")[1].split(" as ")[0] for line in found.missing] == ["DCGM_EXP_P2P_STATUS"]
    assert len(found.fields) == len(peer.DEFAULT_COUNTERS | peer.MORE_COUNTERS) + 14


def test_what_is_no_file_of_text_is_said_to_be_so(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    with pytest.raises(ConfigError, match="No such file"):
        read(path)
    path.write_bytes(b"DCGM_FI_DEV_GPU_UTIL, gauge, x\n\xff\xfe\n")
    assert read(path).refused == (f"{path}:2: found bytes that are no text, expected UTF-8",)
    path.write_bytes(b"#" * (2 << 20))
    with pytest.raises(ConfigError, match="more than 1 MiB"):
        read(path)
    path.write_bytes(b"\xef\xbb\xbfDCGM_FI_DEV_GPU_UTIL, gauge, x\r\n")
    assert read(path).series[0].help == "x"


def test_without_a_file_the_usual_fields_are_exported() -> None:
    assert {"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"} <= {field.name for field in USUAL.series}
    assert USUAL.labels == ("DCGM_FI_DRIVER_VERSION",)
