"""Where the driver lies: roots as GKE, Talos and Debian lay them out, and roots that lack what containers need."""

from pathlib import Path

import pytest

from agent.kubelet.driverfiles import DEFAULT_HOOK, NoDriverError, find_driver, find_hook, find_nvml, listed_folders
from agent.kubelet.hostroot import HostRoot, seen_at
from deviceplugin.drivermounts import HOOKS, DriverFiles, HookProgram
from tests.support.agent.hosts import LAYOUTS, VERSION, Host, debian, gke, install, program, talos

FOLDERS = {"gke": "/lib64", "talos": "/glibc/usr/lib", "debian": "/usr/lib/x86_64-linux-gnu/nvidia/current"}
PROGRAMS = {"gke": "/bin/nvidia-smi", "talos": "/bin/nvidia-smi", "debian": "/usr/bin/nvidia-smi"}


def found(host: Host, version: str = VERSION) -> DriverFiles:
    return find_driver(HostRoot(host.driver_root), version)


def links_of(driver: DriverFiles, stem: str) -> dict[str, str]:
    """Link name to its target, of one library."""
    (library,) = [one for one in driver.libraries if one.name.startswith(f"{stem}.so")]
    return {link.path.rpartition("/")[2]: link.target for link in library.links}


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_libraries_and_programs_are_found_at_their_place_in_the_root(layout: str, tmp_path: Path) -> None:
    host = LAYOUTS[layout](tmp_path)
    driver = found(host)
    assert (driver.main_folder, driver.version) == (FOLDERS[layout], VERSION)
    for library in driver.libraries:
        assert library.host_path == f"{host.driver_root}{FOLDERS[layout]}/{library.name}"
    assert {one.name for one in driver.libraries} >= {f"libcuda.so.{VERSION}", f"libnvidia-ml.so.{VERSION}"}
    assert all(one.name.endswith(VERSION) for one in driver.libraries), "not libc's nor the toolkit's"
    programs = {inside: host_path for host_path, inside in driver.programs}
    assert PROGRAMS[layout] in programs
    assert all(Path(place).is_file() and not Path(place).is_symlink() for place in programs.values())


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_nvml_lies_among_them_where_this_process_sees_the_root(layout: str, tmp_path: Path) -> None:
    host = LAYOUTS[layout](tmp_path)
    mounted = HostRoot(Path("/elsewhere"), lambda path: host.driver_root / path.relative_to("/elsewhere"))
    assert find_nvml(mounted) == Path(f"{host.driver_root}{FOLDERS[layout]}/libnvidia-ml.so.{VERSION}")


def test_without_a_driver_there_is_no_nvml(tmp_path: Path) -> None:
    assert find_nvml(HostRoot(gke(tmp_path, libraries=False).driver_root)) is None


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_libraries_go_by_every_name_that_programs_ask_for(layout: str, tmp_path: Path) -> None:
    driver = found(LAYOUTS[layout](tmp_path))
    assert links_of(driver, "libcuda") == {"libcuda.so": "libcuda.so.1", "libcuda.so.1": f"libcuda.so.{VERSION}"}
    assert links_of(driver, "libnvidia-opticalflow") == {
        "libnvidia-opticalflow.so": "libnvidia-opticalflow.so.1",
        "libnvidia-opticalflow.so.1": f"libnvidia-opticalflow.so.{VERSION}",
    }
    assert links_of(driver, "libGLX_nvidia") == {
        "libGLX_indirect.so.0": f"libGLX_nvidia.so.{VERSION}",
        "libGLX_nvidia.so.0": f"libGLX_nvidia.so.{VERSION}",
    }
    assert links_of(driver, "libnvidia-ml") == {"libnvidia-ml.so.1": f"libnvidia-ml.so.{VERSION}"}
    assert links_of(driver, "libnvidia-glcore") == {}


def test_without_links_on_the_host_the_libraries_say_their_names_themselves(tmp_path: Path) -> None:
    install(tmp_path / "lib64", links=False)
    driver = find_driver(HostRoot(tmp_path), VERSION)
    assert links_of(driver, "libnvidia-ml") == {"libnvidia-ml.so.1": f"libnvidia-ml.so.{VERSION}"}


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_without_libcuda_there_is_no_driver(layout: str, tmp_path: Path) -> None:
    host = LAYOUTS[layout](tmp_path, libraries=False)
    with pytest.raises(
        NoDriverError, match=rf"^found no libcuda.so.{VERSION} below the driver root {host.driver_root},"
    ):
        found(host)


def test_a_driver_of_another_version_than_the_kernels_is_none(tmp_path: Path) -> None:
    host = gke(tmp_path)
    with pytest.raises(NoDriverError, match=r"libcuda\.so\.550\.54\.15"):
        found(host, "550.54.15")
    assert found(host, "").version == VERSION


def test_of_two_versions_side_by_side_the_kernels_counts(tmp_path: Path) -> None:
    host = gke(tmp_path)
    install(host.driver_root / "lib64", links=False, version="550.54.15")
    assert {one.name.partition(".so.")[2] for one in found(host).libraries} == {VERSION}


def test_a_link_that_leads_nowhere_is_no_library(tmp_path: Path) -> None:
    host = gke(tmp_path)
    place = host.driver_root / f"lib64/libcuda.so.{VERSION}"
    place.unlink()
    place.symlink_to("/gone/libcuda.so")
    with pytest.raises(NoDriverError):
        found(host)


def test_links_are_followed_inside_the_root_also_where_it_is_mounted_elsewhere(tmp_path: Path) -> None:
    host = debian(tmp_path / "driver-root")
    stored = host.root / "store"
    stored.mkdir()
    library = host.root / f"usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.{VERSION}"
    library.rename(stored / library.name)
    library.symlink_to(f"/store/{library.name}")
    driver = find_driver(HostRoot(Path("/"), seen_at(Path("/"), host.root)), VERSION)
    (ml,) = [one for one in driver.libraries if one.name.startswith("libnvidia-ml")]
    assert ml.host_path == f"/store/libnvidia-ml.so.{VERSION}"
    assert ml.path == f"/usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.{VERSION}"
    assert ("/usr/lib/nvidia/current/nvidia-smi", "/usr/bin/nvidia-smi") in driver.programs


def test_links_in_a_circle_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    root = HostRoot(tmp_path)
    assert (root.real("/a/x"), root.names("/a"), root.real("/../.."), root.real("/none")) == (None, (), "/", None)


def test_folders_of_the_loaders_cache_are_searched_last(tmp_path: Path) -> None:
    install(tmp_path / "opt/nvidia")
    assert find_driver(HostRoot(tmp_path), VERSION, ["/opt/nvidia"]).main_folder == "/opt/nvidia"
    install(tmp_path / "usr/lib64")
    assert find_driver(HostRoot(tmp_path), VERSION, ["/opt/nvidia"]).main_folder == "/usr/lib64"


def test_the_loaders_cache_names_the_folders_of_64_bit_libraries() -> None:
    listed = (
        "2 libs found in cache `/etc/ld.so.cache'\n"
        "\tlibcuda.so.1 (libc6) => /usr/lib32/libcuda.so.1\n"
        "\tlibcuda.so.1 (libc6,x86-64) => /opt/nvidia/libcuda.so.1\n"
        "\tlibcuda.so (libc6,x86-64) => /opt/nvidia/libcuda.so\n"
        "\tlibcuda.so.1 (libc6,AArch64) => /opt/arm/libcuda.so.1\n"
        "\tlibcudart.so.12 (libc6,x86-64) => /usr/local/cuda/lib64/libcudart.so.12\n"
    )
    assert listed_folders(listed) == ("/opt/nvidia", "/opt/arm")
    assert listed_folders("\x00\ufffd => \n=> =>\n") == ()


# The hook program.


def test_a_hook_program_that_is_not_there_is_not_called(tmp_path: Path) -> None:
    assert find_hook(tmp_path / "nvidia-ctk", ()) is None
    program(tmp_path / "nvidia-ctk")
    assert find_hook(tmp_path / "nvidia-ctk", ()) == HookProgram(str(tmp_path / "nvidia-ctk"), HOOKS)
    assert find_hook(tmp_path / "nvidia-ctk", ("all",)) is None


def test_an_older_program_is_asked_only_for_the_hooks_it_knows(tmp_path: Path) -> None:
    content = b"\x7fELF\x02\x01\x01 chmod\0create-symlinks\0update-ldcache\0"
    program(tmp_path / "nvidia-cdi-hook", content)
    hook = find_hook(tmp_path / "nvidia-cdi-hook", ())
    assert hook is not None
    assert hook.hooks == ("create-symlinks", "update-ldcache")


def test_behind_a_wrapper_the_program_beside_it_says_what_it_knows(tmp_path: Path) -> None:
    program(tmp_path / "nvidia-cdi-hook")
    program(tmp_path / "nvidia-cdi-hook.real", b"\x7fELF\x02\x01\x01 create-symlinks\0update-ldcache\0")
    hook = find_hook(tmp_path / "nvidia-cdi-hook", ())
    assert hook == HookProgram(str(tmp_path / "nvidia-cdi-hook"), ("create-symlinks", "update-ldcache"))


def test_the_default_is_found_under_its_newer_name_in_a_mounted_root(tmp_path: Path) -> None:
    host = talos(tmp_path / "driver-root")
    seen = seen_at(Path("/"), host.root)
    assert find_hook(DEFAULT_HOOK, (), seen=seen) is None
    program(host.root / "usr/local/bin/nvidia-cdi-hook")
    hook = find_hook(DEFAULT_HOOK, (), seen=seen)
    assert hook is not None
    assert hook.path == "/usr/local/bin/nvidia-cdi-hook"


def test_a_program_out_of_sight_is_taken_as_named_and_never_guessed() -> None:
    named = Path("/usr/local/nvidia/toolkit/nvidia-cdi-hook")
    assert find_hook(named, (), hidden=True) == HookProgram(str(named), HOOKS)
    assert find_hook(DEFAULT_HOOK.with_name("absent"), (), hidden=False) is None
