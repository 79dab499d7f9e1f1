"""The skills below an agent's home, by the heads of their files."""

import asyncio
from pathlib import Path
from typing import Any

import yaml

MAX_HEAD = 4000


async def skill_cards(directory: Path) -> list[dict[str, Any]]:
    """List the skills: name, description, category and path below the skills directory."""
    return await asyncio.to_thread(_cards, directory)


def _cards(directory: Path) -> list[dict[str, Any]]:
    cards = []
    for path in sorted(directory.rglob("SKILL.md")) if directory.is_dir() else ():
        head = _head(path)
        place = path.parent.relative_to(directory)
        cards.append(
            {
                "name": str(head.get("name") or place.name),
                "description": str(head.get("description") or ""),
                "category": place.parts[0] if len(place.parts) > 1 else "",
                "path": str(place),
            }
        )
    return cards


def _head(path: Path) -> dict[str, Any]:
    """Return the YAML between the first two `---` lines; nothing if there is none."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            text = file.read(MAX_HEAD)
        parts = text.split("---", 2)
        head = yaml.safe_load(parts[1]) if text.startswith("---") and len(parts) > 2 else {}
    except (OSError, yaml.YAMLError):
        return {}
    return head if isinstance(head, dict) else {}
