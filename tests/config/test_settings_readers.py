"""Every setting has a reader: something outside the configuration uses its value.

Live settings are proven by their effect (`journeys/test_settings_effects.py`, each of them);
here are those that are read when the gateway starts. Proven with the type checker, which equal
names cannot fool: in a copy of the source all settings are taken out of their sections, and
every complaint about a missing one names a reader.
"""

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest

from hermes.config.check import bare, fields_by_name, struct_of
from hermes.domain.settings import Settings
from hermes.domain.settings.live import needs_restart

ROOT = Path(__file__).parents[2]
MISSING = re.compile(r'^src/(\S+?):\d+: error: "(\w+)" has no attribute "(\w+)"', re.MULTILINE)
NOT_READERS = ("hermes/domain/settings/", "hermes/config/")
FILES = ("agent", "doors", "execution", "models", "root")


def sections(folder: Path) -> dict[Path, ast.Module]:
    return {
        (file := folder / f"{name}.py"): ast.parse(file.read_text(encoding="utf-8"))
        for name in FILES
    }


def without_settings(modules: dict[Path, ast.Module]) -> dict[str, tuple[str, ...]]:
    """Take out what is no section itself; return section -> the settings it and its bases had."""
    classes = {
        node.name: node
        for module in modules.values()
        for node in module.body
        if isinstance(node, ast.ClassDef)
    }
    taken: dict[str, tuple[str, ...]] = {}
    for name, section in classes.items():
        fields = [node for node in section.body if isinstance(node, ast.AnnAssign)]
        leaves = [field for field in fields if not _names(field.annotation) & set(classes)]
        section.body = [node for node in section.body if node not in leaves] or [ast.Pass()]
        own = tuple(field.target.id for field in leaves if isinstance(field.target, ast.Name))
        bases = [base.id for base in section.bases if isinstance(base, ast.Name)]
        taken[name] = own + tuple(each for base in bases for each in taken.get(base, ()))
    return taken


def _names(annotation: ast.expr) -> set[str]:
    nodes = list(ast.walk(annotation))
    return {node.id for node in nodes if isinstance(node, ast.Name)} | {
        node.attr for node in nodes if isinstance(node, ast.Attribute)
    }


def live(kind: Any = Settings) -> Iterator[str]:
    """Name the settings that are not read at start, by their section."""
    for name, info in fields_by_name(kind).items():
        if needs_restart(info.type):
            continue
        plain = bare(info.type)
        section = struct_of(get_args(plain)[1] if get_origin(plain) is dict else plain)
        yield from live(section) if section else [f"{kind.__name__}.{name}"]


@pytest.mark.timeout(300)
def test_every_setting_is_read(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    if (known := ROOT / ".mypy_cache").exists():
        # What the last check of the whole tree found out about the rest is still true.
        shutil.copytree(known, tmp_path / "cache")
    modules = sections(tmp_path / "src/hermes/domain/settings")
    taken = without_settings(modules)
    for file, module in modules.items():
        file.write_text(ast.unparse(module), encoding="utf-8")
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache"), "src"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    found = [match for match in MISSING.findall(checked.stdout) if match[1] in taken]
    assert found, checked.stdout[-2000:] + checked.stderr
    read = {(section, name) for file, section, name in found if not file.startswith(NOT_READERS)}
    bases = {"ModelChoice": "ModelEndpoint", "FallbackProvider": "ModelEndpoint"}
    bases |= {"AuxiliaryTask": "ModelEndpoint", "TitleGeneration": "AuxiliaryTask"}
    read |= {(section, name) for section, base in bases.items() for name in taken[section]
             if (base, name) in read}  # fmt: skip
    read |= {(bases[section], name) for section, name in read if section in bases}
    unread = {
        f"{section}.{name}"
        for section, names in taken.items()
        for name in names
        if (section, name) not in read and (bases.get(section), name) not in read
    }
    assert unread - set(live()) == set()
