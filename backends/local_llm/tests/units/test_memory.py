from __future__ import annotations

from pathlib import Path

import pytest

from caesar_backend_local_llm.engine.memory import available_bytes

MIB = 1024 * 1024


def machine(root: Path, free_mib: int = 1000, groups: str = "0::/\n") -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(
        f"MemTotal:  9999999 kB\nMemAvailable: {free_mib * 1024} kB\nHugePages_Total: 0\n"
    )
    (root / "proc/self/cgroup").write_text(groups)
    return root


def group(folder: Path, limit: str, used: int, cache: int, names: tuple[str, str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\n{names[2]} {cache}\n")


NEW = ("memory.max", "memory.current", "inactive_file")
OLD = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def test_of_the_machine(tmp_path: Path) -> None:
    assert available_bytes(machine(tmp_path)) == 1000 * MIB


@pytest.mark.parametrize("free_mib", [50, 1000])
def test_of_a_container(tmp_path: Path, free_mib: int) -> None:
    root = machine(tmp_path, free_mib)
    group(root / "sys/fs/cgroup", str(300 * MIB), 250 * MIB, 20 * MIB, NEW)
    assert available_bytes(root) == min(70, free_mib) * MIB


def test_without_a_limit(tmp_path: Path) -> None:
    root = machine(tmp_path)
    group(root / "sys/fs/cgroup", "max", 250 * MIB, 0, NEW)
    assert available_bytes(root) == 1000 * MIB


def test_of_the_group_around(tmp_path: Path) -> None:
    root = machine(tmp_path, groups="0::/outer/inner\n")
    group(root / "sys/fs/cgroup/outer/inner", "max", 0, 0, NEW)
    group(root / "sys/fs/cgroup/outer", str(10 * MIB), 4 * MIB, 0, NEW)
    assert available_bytes(root) == 6 * MIB


def test_of_version_1(tmp_path: Path) -> None:
    root = machine(tmp_path, groups="5:cpu:/x\n4:memory:/x\n0::/\n")
    group(root / "sys/fs/cgroup/memory/x", str(10 * MIB), 30 * MIB, MIB, OLD)
    assert available_bytes(root) == 0


def test_where_nobody_says(tmp_path: Path) -> None:
    assert available_bytes(tmp_path) is None
