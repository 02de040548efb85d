"""Environments in which a project is installed in one of the usual ways, made without pip: what an installer leaves, and nothing else."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

STYLES = ("path", "finder", "strict", "plain", "named")
#: What setuptools writes for an editable installation that maps packages one by one.
FINDER = """
import sys
from importlib.machinery import PathFinder
from importlib.util import spec_from_file_location
from pathlib import Path
MAPPING = {mapping!r}

class Finder:
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        if fullname in MAPPING:
            return cls._find_spec(fullname, Path(MAPPING[fullname]))
        return None

    @classmethod
    def _find_spec(cls, fullname, candidate):
        for file in (candidate / "__init__.py", candidate.with_suffix(".py")):
            if file.exists():
                return spec_from_file_location(fullname, file)
        return None

def install():
    sys.meta_path.append(Finder)
"""


def environment(folder: Path, project: Path, style: str, packages: dict[str, str]) -> str:
    """Make a virtual environment with this suite's pytest and the packages of a project, by their paths in it; returns its python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--symlinks", str(folder)], check=True)
    site = next(folder.glob("lib/python3*/site-packages"))
    (site / "pytest-is-there.pth").write_text(sysconfig.get_path("purelib") + "\n")
    info = site / "the_shop-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: The.Shop\nVersion: 1.0\n")
    files = ["the_shop-1.0.dist-info/METADATA"]
    if style in ("path", "strict"):
        roots = {str((project / path).parent) for path in packages.values()}
        if style == "strict":
            links = project / "build" / "__editable__.the_shop-1.0"
            for name, path in packages.items():
                copied(project / path, links / name, hard=True)
            roots = {str(links)}
        (site / "__editable__.the_shop.pth").write_text("\n".join(sorted(roots)) + "\n")
    elif style == "finder":
        mapping = {name: str(project / path) for name, path in packages.items()}
        (site / "__editable___the_shop_finder.py").write_text(FINDER.format(mapping=mapping))
        (site / "__editable__.the_shop.pth").write_text("import __editable___the_shop_finder as f; f.install()\n")
    else:
        for name, path in packages.items():
            files += [str(file.relative_to(site)) for file in copied(project / path, site / name)]
        if style == "plain":
            told = {"url": project.as_uri(), "dir_info": {}}
            (info / "direct_url.json").write_text(json.dumps(told))
            (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-name\nVersion: 1.0\n")
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))
    return str(folder / "bin" / "python")


def copied(source: Path, target: Path, hard: bool = False) -> list[Path]:
    """Copy a package or a module; returns its new files."""
    if not source.is_dir():
        source, target = source.with_suffix(".py"), target.with_suffix(".py")
    made = []
    for file in sorted(source.rglob("*.py")) if source.is_dir() else [source]:
        to = target / file.relative_to(source) if source.is_dir() else target
        to.parent.mkdir(parents=True, exist_ok=True)
        if hard:
            to.hardlink_to(file)
        else:
            shutil.copy(file, to)
        made.append(to)
    return made
