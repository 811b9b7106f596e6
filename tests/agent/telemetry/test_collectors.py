"""dcgm-exporter's collectors file is read as it is; mistakes name their line."""

from pathlib import Path

import pytest

from agent.telemetry.collectors import USUAL, parse, read
from agent.telemetry.fields import Kind
from yamlfile import ConfigError

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
    ]
    assert found.labels == ("DCGM_FI_DRIVER_VERSION",)
    assert [line.partition(" as a ")[0] for line in found.missing] == [
        "counters.csv:12: DCGM_EXP_XID_ERRORS_COUNT",
        "counters.csv:13: DCGM_FI_DEV_SOMETHING_OF_TOMORROW",
    ]


def test_a_quoted_help_is_taken_as_it_stands() -> None:
    text = (
        'DCGM_FI_DEV_GPU_UTIL, gauge, "a  b, ""c""\n# no comment"\r\nDCGM_FI_DEV_FB_USED, gauge, d\u2028e\x0bf "g"\r\n'
    )
    assert [field.help for field in parse(text, "f").fields] == ['a  b, "c"\n# no comment', 'd\u2028e\x0bf "g"']


def test_the_type_is_the_files_own() -> None:
    assert parse("DCGM_FI_DEV_GPU_UTIL, counter, odd\n", "f").series[0].kind is Kind.COUNTER


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
        (
            "DCGM_FI_DEV_GPU_UTIL, gauge, x\nDCGM_FI_DEV_GPU_UTIL, gauge, x\n",
            "f:2: DCGM_FI_DEV_GPU_UTIL: found the field a second time",
        ),
        ("# nothing\n", "f: found no field that NVML gives"),
        (
            '\nDCGM_FI_DEV_GPU_UTIL, gauge, "open\nDCGM_FI_DEV_FB_USED, gauge, y\n',
            "f:2: found unexpected end of data, expected FIELD, type, help, every quote closed",
        ),
        ('DCGM_FI_DEV_GPU_UTIL, gauge, "x" y\n', "f:1: found ',' expected after '\"'"),
        ('DCGM_FI_DEV_GPU_UTIL, gauge, "a\nb"\nDCGM_FI_DEV_FB_USED, guage, y\n', "f:3: DCGM_FI_DEV_FB_USED: found"),
    ],
)
def test_a_mistake_names_its_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as wrong:
        parse(text, "f")
    assert str(wrong.value).startswith(message)


def test_what_is_no_file_of_text_is_said_to_be_so(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    with pytest.raises(ConfigError, match="No such file"):
        read(path)
    path.write_bytes(b"DCGM_FI_DEV_GPU_UTIL, gauge, x\n\xff\xfe\n")
    with pytest.raises(ConfigError, match=r"f\.csv:2: found bytes that are no text"):
        read(path)
    path.write_bytes(b"#" * (2 << 20))
    with pytest.raises(ConfigError, match="more than 1 MiB"):
        read(path)
    path.write_bytes(b"\xef\xbb\xbfDCGM_FI_DEV_GPU_UTIL, gauge, x\r\n")
    assert read(path).series[0].help == "x"


def test_without_a_file_the_usual_fields_are_exported() -> None:
    assert {"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"} <= {field.name for field in USUAL.series}
    assert USUAL.labels == ("DCGM_FI_DRIVER_VERSION",)
