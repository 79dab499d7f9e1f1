"""The page at `/docs`, read by a real browser."""

import asyncio
import os
import re
import shutil
from pathlib import Path

import pytest

from fakes.http_door import http_door
from hermes.entry.http.api import all_endpoints
from hermes.testing.model import ScriptedModel

BROWSER = shutil.which("chromium")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-quic"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)

pytestmark = pytest.mark.skipif(
    BROWSER is None and not os.environ.get("CI"), reason="chromium is not installed"
)


async def rendered(url: str, profile: Path) -> str:
    assert BROWSER is not None
    process = await asyncio.create_subprocess_exec(
        *(BROWSER, *FLAGS, f"--user-data-dir={profile}", "--virtual-time-budget=5000"),
        *("--dump-dom", url),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(50):
            out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return out.decode()


async def test_the_page_lists_every_operation_with_a_command_to_try(tmp_path: Path) -> None:
    async with http_door(tmp_path, ScriptedModel(), endpoints=all_endpoints()) as door:
        page = await rendered(f"{door.base_url}/docs", tmp_path / "browser")
        for endpoint in all_endpoints():
            assert f'<details id="{endpoint.name}"' in page
        assert f"curl -N {door.base_url}/v1/chat/completions" in page
        assert f"curl -X DELETE {door.base_url}/api/sessions/{{session_id}}" in page
    assert "Authorization: Bearer $API_SERVER_KEY" in page
    assert '<details id="shape-ErrorBody"' in page
    assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", page)
