"""A package that somebody else installed: a module and its entry points."""

from pathlib import Path


def install(folder: Path, module: str, code: str, points: str) -> str:
    """Put a package into `folder`, as an installer would; return the folder."""
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / f"{module}.py").write_text(code, encoding="utf-8")
    (info / "entry_points.txt").write_text(points, encoding="utf-8")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    return str(folder)
