"""Open WebUI in a browser: the model list, a tool, consent by typing, Stop, Continue.

python open_webui.py ADDRESS FOLDER     (needs playwright and chromium; screenshots go to FOLDER)
"""

import json
import re
import sys
import traceback
from pathlib import Path

from playwright.sync_api import Error, Page, sync_playwright

ASKS = "I need your consent to run this: answer yes or no."

ADDRESS, FOLDER = sys.argv[1], Path(sys.argv[2])
WAIT = 30_000


class Chat:
    """The page, as a person uses it."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def open(self) -> None:
        self.page.goto(ADDRESS, timeout=2 * WAIT)
        self.page.wait_for_selector("#chat-input", timeout=2 * WAIT)
        greeting = self.page.get_by_role("button", name="Okay, Let's Go!")
        if greeting.is_visible():
            greeting.click()

    def say(self, text: str) -> None:
        self.page.locator("#chat-input").click()
        self.page.keyboard.type(text)
        self.page.keyboard.press("Enter")

    def sees(self, text: str, times: int = 1) -> None:
        shown = self.page.locator(".chat-assistant").filter(has_text=text)
        shown.nth(times - 1).wait_for(timeout=WAIT)

    def rests(self) -> None:
        """Wait until the last answer is complete."""
        self.page.get_by_role("button", name=re.compile("^Copy$")).last.wait_for(timeout=WAIT)

    def shot(self, name: str) -> None:
        self.page.screenshot(path=FOLDER / f"{name}.png")


def cases(chat):
    def models():
        chat.open()
        chat.page.get_by_role("button", name="hermes").first.wait_for(timeout=WAIT)

    def tool():
        chat.say("own open_webui look")
        chat.sees("I looked.")
        chat.rests()
        chat.shot("tool")

    def consent():
        chat.say("Please clean open_webui-chat.")
        chat.sees(ASKS)
        chat.shot("asks")
        chat.rests()
        chat.say("yes")
        chat.sees("It is clean.")
        chat.rests()
        chat.shot("consent")

    def stop():
        chat.say("stall now")
        chat.sees("This takes")
        chat.page.get_by_role("button", name="Stop").click()
        chat.rests()
        chat.shot("stopped")

    def goes_on():
        chat.page.get_by_role("button", name="Continue Response").last.click()
        chat.sees("Or not.")
        chat.rests()
        chat.shot("continued")

    def after():
        chat.say("Hi again")
        chat.sees("Hello from the agent.")
        chat.rests()
        chat.shot("after")

    return {case.__name__: case for case in (models, tool, consent, stop, goes_on, after)}


with sync_playwright() as driver:
    browser = driver.chromium.launch(
        executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"]
    )
    chat = Chat(browser.new_page(viewport={"width": 1200, "height": 1000}))
    for name, case in cases(chat).items():
        failed = None
        try:
            case()
        except Error:
            failed = traceback.format_exc()
            chat.shot(f"failed-{name}")
        sys.stdout.write(json.dumps({"case": name, "failed": failed}) + "\n")
        sys.stdout.flush()
    browser.close()
