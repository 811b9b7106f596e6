"""The layout list as people write it: what each entry means, and every mistake with its line and key."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.config.layoutsection import parse_layout, parse_remediation
from agent.config.load import load
from agent.config.names import ConfigName
from agent.config.settings import ConfigFallback, Settings
from inventory.devices import ResourceName
from inventory.layout.entries import FractionPlacement, GpuSelector, LayoutEntry, LayoutMode, MpsClient, WhenBusy
from inventory.layout.sharing import SharingMode
from yamlfile import ConfigError


def settings(folder: Path, entries: str) -> Settings:
    path = folder / "config.yaml"
    path.write_text(f"version: v1\nlayout:\n{entries}\n")
    return load(path, {}, {}).settings


def only(folder: Path, entry: str) -> LayoutEntry:
    (found,) = settings(folder, f"- {entry}").gpu_layout.entries
    return found


ON_1 = GpuSelector(refs=("1",))


@pytest.mark.parametrize(
    ("entry", "meant"),
    [
        ("{gpus: [1], mode: whole}", LayoutEntry(ON_1, LayoutMode.WHOLE)),
        (
            "{gpus: [1], mode: timeSlicing, replicas: 4, rename: false, whenBusy: drain}",
            LayoutEntry(ON_1, LayoutMode.TIME_SLICING, replicas=4, rename=False, when_busy=WhenBusy.DRAIN),
        ),
        ("{gpus: [1], mode: mps, replicas: 3}", LayoutEntry(ON_1, LayoutMode.MPS, replicas=3)),
        (
            "{gpus: [1], mode: mps, clients: [{memory: 40Gi, threads: 50, resource: b}, {threads: 5, resource: a/c}]}",
            LayoutEntry(
                ON_1,
                LayoutMode.MPS,
                clients=(
                    MpsClient(40960, 50, ResourceName("nvidia.com/b")),
                    MpsClient(None, 5, ResourceName("a/c")),
                ),
            ),
        ),
        (
            "{gpus: [1], mode: mps, clients: [{memory: 1G}, {memory: 1G}]}",
            LayoutEntry(ON_1, LayoutMode.MPS, clients=(MpsClient(953),) * 2),
        ),
        (
            "{gpus: [1], mode: fractional, granularity: 25, placement: spread}",
            LayoutEntry(ON_1, LayoutMode.FRACTIONAL, granularity=25, placement=FractionPlacement.SPREAD),
        ),
        (
            "{gpus: [1], mode: fractional, oneDaemon: true}",
            LayoutEntry(ON_1, LayoutMode.FRACTIONAL, one_daemon=True),
        ),
        ("{gpus: [1], mode: dra}", LayoutEntry(ON_1, LayoutMode.DRA)),
        ("{gpus: [1], mode: dra, shares: {}}", LayoutEntry(ON_1, LayoutMode.DRA, shares=1)),
        ("{gpus: [1], mode: dra, shares: {granularity: 20}}", LayoutEntry(ON_1, LayoutMode.DRA, shares=20)),
        (
            "{gpus: [1], mode: mig, profiles: [1g.10gb+me, 3g.40gb], replicas: 2, sharing: mps, resource: x.y/half}",
            LayoutEntry(
                ON_1,
                LayoutMode.MIG,
                profiles=("1g.10gb+me", "3g.40gb"),
                replicas=2,
                sharing=SharingMode.MPS,
                resource=ResourceName("x.y/half"),
            ),
        ),
        ("{gpus: {any: 2}, mode: whole}", LayoutEntry(GpuSelector(any_count=2), LayoutMode.WHOLE)),
        (
            "{gpus: {product: NVIDIA H100, any: 2}, mode: whole}",
            LayoutEntry(GpuSelector(product="NVIDIA H100", any_count=2), LayoutMode.WHOLE),
        ),
        (
            "{gpus: [GPU-11111111-2222-3333-4444-555555555555, 0], mode: whole}",
            LayoutEntry(GpuSelector(refs=("GPU-11111111-2222-3333-4444-555555555555", "0")), LayoutMode.WHOLE),
        ),
    ],
)
def test_an_entry_means_what_it_says(tmp_path: Path, entry: str, meant: LayoutEntry) -> None:
    found = only(tmp_path, entry)
    assert found.where == f"{tmp_path}/config.yaml:3"
    assert {name: getattr(found, name) for name in found.__struct_fields__ if name != "where"} == {
        name: getattr(meant, name) for name in meant.__struct_fields__ if name != "where"
    }


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("{mode: whole}", "layout[0]: found none, expected the key gpus"),
        ("{gpus: [1]}", "layout[0]: found none, expected the key mode"),
        ("{gpus: [1], mode: sliced}", "layout[0].mode: found 'sliced', expected"),
        ("{gpus: 1, mode: whole}", "layout[0].gpus: found 1, expected a list of indexes"),
        ("{gpus: [], mode: whole}", "layout[0].gpus: found 0 GPUs"),
        ("{gpus: {}, mode: whole}", "layout[0].gpus: found an empty section"),
        ("{gpus: [-1], mode: whole}", "layout[0].gpus[0]: found -1, expected an index"),
        ("{gpus: [1, 1], mode: whole}", "layout[0].gpus[1]: found 1 twice"),
        ("{gpus: [MIG-1], mode: whole}", "layout[0].gpus[0]: found 'MIG-1'"),
        ("{gpus: {any: 0}, mode: whole}", "layout[0].gpus.any: found 0"),
        ("{gpus: {nay: 1}, mode: whole}", "layout[0].gpus.nay: found an unknown key; did you mean any?"),
        ("{gpus: [1], mode: whole, replcas: 2}", "layout[0].replcas: found an unknown key; did you mean replicas?"),
        ("{gpus: [1], mode: whole, replicas: 2}", "layout[0].replicas: found the key replicas, expected one of"),
        ("{gpus: [1], mode: timeSlicing}", "layout[0]: found none, expected the key replicas"),
        ("{gpus: [1], mode: timeSlicing, replicas: 1}", "layout[0].replicas: found 1"),
        ("{gpus: [1], mode: mps}", "layout[0]: found neither, expected either replicas"),
        ("{gpus: [1], mode: mps, replicas: 2, clients: [{threads: 1}]}", "layout[0]: found both"),
        ("{gpus: [1], mode: mps, replicas: 61}", "layout[0].replicas: found 61"),
        ("{gpus: [1], mode: mps, clients: []}", "layout[0].clients: found 0 clients"),
        ("{gpus: [1], mode: mps, clients: [{}]}", "layout[0].clients[0]: found neither, expected memory, threads"),
        ("{gpus: [1], mode: mps, clients: [{threads: 101}]}", "layout[0].clients[0].threads: found 101"),
        ("{gpus: [1], mode: mps, clients: [{memory: much}]}", "layout[0].clients[0].memory: found 'much'"),
        (
            "{gpus: [1], mode: mps, clients: [{memory: 2Gi}, {memory: 1Gi}]}",
            "clients[0]: found none, expected the key resource (resource: nvidia.com/gpu-large), one name for each",
        ),
        (
            "{gpus: [1], mode: mps, clients: [{memory: 2Gi, resource: a}, {memory: 1Gi, resource: a}]}",
            "layout[0].clients[1]: found another size of nvidia.com/a",
        ),
        (
            "{gpus: [1], mode: fractional, granularity: 30}",
            "layout[0].granularity: found 30, expected a divisor of 100",
        ),
        ("{gpus: [1], mode: fractional, placement: tight}", "layout[0].placement: found 'tight'"),
        ("{gpus: [1], mode: fractional, oneDaemon: 2}", "layout[0].oneDaemon: found"),
        ("{gpus: [1], mode: dra, shares: 10}", "layout[0].shares: found"),
        ("{gpus: [1], mode: dra, shares: {granularity: 30}}", "layout[0].shares.granularity: found 30"),
        ("{gpus: [1], mode: dra, shares: {step: 10}}", "layout[0].shares"),
        ("{gpus: [1], mode: whole, shares: {}}", "found the key shares"),
        ("{gpus: [1], mode: mig}", "layout[0]: found none, expected the key profiles"),
        ("{gpus: [1], mode: mig, profiles: []}", "layout[0].profiles: found 0 profiles"),
        ("{gpus: [1], mode: mig, profiles: [half]}", "layout[0].profiles[0]: found 'half'"),
        ("{gpus: [1], mode: whole, resource: kubernetes.io/x}", "layout[0].resource: found kubernetes.io/x"),
        ("{gpus: [1], mode: whole, resource: tessera.dev/gpu-percent}", "expected a name that is not taken"),
        (
            "{gpus: [1], mode: timeSlicing, replicas: 2, rename: true, resource: x}",
            "expected either resource or rename",
        ),
        ("{gpus: [1], mode: whole, whenBusy: kill}", "layout[0].whenBusy: found 'kill'"),
        ("{gpus: [1], mode: whole}\n- {gpus: [1], mode: whole}", ":4: layout[1]: found GPU 1 a second time"),
        ("just words", "layout[0]: found 'just words', expected a section"),
    ],
)
def test_every_mistake_is_one_line_with_its_place(tmp_path: Path, entry: str, said: str) -> None:
    with pytest.raises(ConfigError) as wrong:
        only(tmp_path, entry)
    assert said in str(wrong.value)
    assert str(wrong.value).startswith(f"{tmp_path}/config.yaml:")
    assert "\n" not in str(wrong.value)


def test_without_the_key_there_is_no_layout(tmp_path: Path) -> None:
    assert not settings(tmp_path, "").gpu_layout


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 200) | st.sampled_from(["gpus", "mode", "mig", "3g.40gb", "any", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["gpus", "mode", "replicas", "clients", "any", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.lists(JUNK, max_size=3))
def test_whatever_a_gpulayout_holds_it_is_a_layout_or_one_line(content: list[object]) -> None:
    said = ""
    try:
        parse_layout(json.dumps(content), "GpuLayout a")
    except ConfigError as wrong:
        said = str(wrong)
    assert "\n" not in said


def test_a_named_configuration_is_remembered_until_the_label_goes(tmp_path: Path) -> None:
    configs, given_file = tmp_path / "configs", tmp_path / "config.yaml"
    names = ConfigName(tmp_path)
    assert names.path(configs, given_file, ConfigFallback()) == given_file
    assert names.path(configs, None, ConfigFallback()) is None
    names.choose("small")
    assert ConfigName(tmp_path).path(configs, given_file, ConfigFallback()) == configs / "small"
    names.choose(None)
    assert ConfigName(tmp_path).path(configs, given_file, ConfigFallback()) == given_file
    configs.mkdir()
    (configs / "default").write_text("")
    assert names.path(configs, None, ConfigFallback()) == configs / "default"


@pytest.mark.parametrize("name", ["../up", "..", "."])
def test_a_name_leads_nowhere_but_into_the_folder(tmp_path: Path, name: str) -> None:
    names = ConfigName(tmp_path)
    names.choose(name)
    assert names.path(tmp_path / "configs", None, ConfigFallback()) is None


def test_a_gpulayouts_remediation_has_the_files_keys() -> None:
    text = '{"reset": "drain", "reboot": "ask", "attempts": 3, "retireAfter": {"faults": 4, "within": "12h"}}'
    assert dict(parse_remediation(text, "GpuLayout a")) == {
        "reset": "drain",
        "reboot": "ask",
        "attempts": 3,
        "retire_faults": 4,
        "retire_within_s": 43200.0,
    }
    assert parse_remediation("null", "GpuLayout a") == parse_remediation("{}", "GpuLayout a") == ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"reset": "always"}', "remediation.reset: found 'always', expected never, when-free or drain"),
        ('{"verify": {"command": ["/bin/sh"]}}', "remediation.verify: found a program, expected none"),
        ('{"stewards": ["a"]}', "remediation.stewards: found names, expected none"),
        ('{"verify": {"timeout": "5s"}}', "remediation.verify: found a program, expected none"),
        ('{"rest": "never"}', "remediation.rest: found an unknown key; did you mean reset?"),
        ("[1]", "remediation: found a list"),
        ('{"attempts": ' * 5000 + "1" + "}" * 5000, "GpuLayout a"),
    ],
    ids=lambda text: text[:40],
)
def test_a_slip_in_a_gpulayouts_remediation_is_one_line(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as wrong:
        parse_remediation(text, "GpuLayout a")
    assert says in str(wrong.value)
    assert "\n" not in str(wrong.value)
