"""Page: the tab of a session, and everything tools do with it.

A page is looked at as assistive technology has it: the accessibility tree of the document and its
frames, in lines, with `@e1`, `@e2` for everything one can act on. These names hold until the page
is looked at again.
"""

import asyncio
import base64
import logging
import re
from collections import deque
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import msgspec

from hermes.domain.errors import HermesError, ToolRefused, UsageError
from hermes.domain.settings.agent import BrowserSettings
from hermes.execution.browser.chrome import Chrome, Unresponsive
from hermes.execution.browser.guard import AddressOf

log = logging.getLogger(__name__)

LOADING = 20.0
STARTS = 0.3
"""Seconds within which an action begins to load something, if it does."""
SHORT, FULL = 8_000, 60_000
NAME = 300
"""Characters of one text, unless everything is asked for."""
_ACTED_ON = frozenset(
    {"button", "link", "textbox", "searchbox", "checkbox", "radio", "combobox", "menuitem", "tab"}
    | {"menuitemcheckbox", "menuitemradio", "switch", "slider", "option", "listbox", "spinbutton"}
    | {"treeitem", "DisclosureTriangle", "Date", "DateTime", "InputTime", "ColorWell"}
)
_SKIPPED = frozenset({"none", "generic", "InlineTextBox", "RootWebArea", "LineBreak", "paragraph"})
_KEYS = {
    "enter": ("Enter", 13, "\r"),
    "tab": ("Tab", 9, ""),
    "escape": ("Escape", 27, ""),
    "backspace": ("Backspace", 8, ""),
    "delete": ("Delete", 46, ""),
    "space": (" ", 32, " "),
    "arrowup": ("ArrowUp", 38, ""),
    "arrowdown": ("ArrowDown", 40, ""),
    "arrowleft": ("ArrowLeft", 37, ""),
    "arrowright": ("ArrowRight", 39, ""),
    "home": ("Home", 36, ""),
    "end": ("End", 35, ""),
    "pageup": ("PageUp", 33, ""),
    "pagedown": ("PageDown", 34, ""),
}
_LOOK_AGAIN = "Look again: browser_snapshot."
_CHOOSE = """function() {
  const list = this.tagName === 'OPTION' && this.closest('select');
  if (!list) return false;
  this.selected = list.multiple ? !this.selected : true;
  for (const kind of ['input', 'change']) list.dispatchEvent(new Event(kind, {bubbles: true}));
  return true;
}"""
_FILL = """function(text) {
  const host = this.getRootNode().host;
  const field = host && host.tagName === 'INPUT' ? host : this;
  const told = () => {
    for (const kind of ['input', 'change']) field.dispatchEvent(new Event(kind, {bubbles: true}));
  };
  if (field.disabled || field.readOnly) return 'cannot be changed.';
  if (field.tagName === 'SELECT') {
    const same = word => word.trim().toLowerCase() === text.trim().toLowerCase();
    const found = [...field.options].find(o => same(o.label) || same(o.value));
    if (!found) return 'takes: ' + [...field.options].map(o => o.label).join(', ').slice(0, 500);
    found.selected = true;
    told();
    return 'set';
  }
  const kind = field.tagName === 'INPUT' ? field.type : '';
  const forms = {date: '2026-12-31', time: '14:30', 'datetime-local': '2026-12-31T14:30',
    month: '2026-12', week: '2026-W52', color: '#ff0000', range: 'a number'};
  if (kind in forms) {
    const before = field.value;
    Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set.call(field, text);
    if (field.value !== text && !(kind === 'range' && Number(text) === Number(field.value))) {
      field.value = before;
      return `takes something like ${forms[kind]}.`;
    }
    told();
    return 'set';
  }
  const other = ['checkbox', 'radio', 'button', 'submit', 'reset', 'image', 'file'];
  const typed = kind ? !other.includes(kind) : field.tagName === 'TEXTAREA';
  if (!typed && !field.isContentEditable) return 'is not a text field.';
  field.focus();
  if (typed) field.select();
  else getSelection().selectAllChildren(field);
  return 'type';
}"""
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?!\d)")
_FRAME_GONE = "frameId is not found"
_IMAGES = """[...document.images].slice(0, 100).map(i => [i.currentSrc || i.src, i.alt,
 i.naturalWidth, i.naturalHeight])"""


class Page:
    """One tab; the session's next one if a page opens another."""

    def __init__(
        self,
        chrome: Chrome,
        context: str,
        settings: Callable[[], BrowserSettings],
        address_of: AddressOf,
        *,
        guarded: bool,
    ) -> None:
        self._chrome, self.context, self._settings = chrome, context, settings
        self._address_of, self._guarded = address_of, guarded
        self.target = self._session = ""
        self._refs: dict[str, int] = {}
        self._said: deque[str] = deque(maxlen=200)
        self._stuck = False
        """Something took too long: the page may never answer again."""
        self._private = False
        """Something that the page is made of came from a private network."""
        self._dialog: dict[str, Any] | None = None
        self._dialog_opened = asyncio.Event()
        self._loading = asyncio.Event()
        self._loaded = asyncio.Event()
        self._beside: set[asyncio.Task[Any]] = set()

    async def attach(self, target: str = "") -> None:
        if not target:
            made = await self._chrome.call(
                "Target.createTarget", url="about:blank", browserContextId=self.context
            )
            target = made["targetId"]
        attached = await self._chrome.call("Target.attachToTarget", targetId=target, flatten=True)
        self.target, self._session = target, attached["sessionId"]
        self._chrome.listeners[self._session] = self._heard
        for domain in ("Page", "Runtime", "DOM", "Accessibility"):
            await self._call(f"{domain}.enable")
        if not self._guarded:
            # A browser elsewhere that does not get to our proxy: each request is asked about, and
            # as it looks the name up itself, what came from a private network is not shown.
            await self._call("Fetch.enable", patterns=[{"urlPattern": "*"}])
            await self._call("Network.enable")
            await self._call("Network.setCacheDisabled", cacheDisabled=True)

    def follow(self, target: str) -> None:
        """Go on in a window that the page opened."""
        self._loading.set()
        self._keep(asyncio.ensure_future(self._followed(target)))

    async def _followed(self, target: str) -> None:
        await self.attach(target)
        state = await self._call("Runtime.evaluate", expression="document.readyState")
        if state["result"].get("value") == "complete":  # it was there before we listened
            self._loaded.set()

    async def close(self) -> None:
        for task in self._beside:
            task.cancel()
        self._chrome.listeners.pop(self._session, None)
        if not self._chrome.ended.is_set():
            await self._chrome.call(
                "Target.disposeBrowserContext", timeout=5, browserContextId=self.context
            )

    async def navigate(self, url: str) -> str:
        url = url if _SCHEME.match(url) else f"https://{url}"
        try:
            parts = urlsplit(url)
            port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError:
            raise UsageError(f"{url} is not an address.") from None
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise UsageError("Only http and https addresses can be opened.")
        await self._address_of(parts.hostname, port)
        if self._stuck or self._dialog is not None:
            await self._renew()
        await self.visit(url, within=self._patience)
        await self._settled(started=True)
        return await self._where()

    async def visit(self, url: str, *, within: float) -> None:
        self._loaded.clear()
        self._private = False
        answer = await self._call("Page.navigate", within=within, url=url)
        if error := answer.get("errorText"):
            aborted = error == "net::ERR_ABORTED"
            raise HermesError(
                f"{url} could not be opened: {error}.",
                hint="It may be a download, which is refused here: use web_extract." * aborted,
            )

    async def _renew(self) -> None:
        """Go on in a new tab: the one there is runs something that does not end, or waits."""
        old = self.target
        self._chrome.listeners.pop(self._session, None)
        self._closed_dialog()
        self._said.clear()
        self._stuck = self._private = False
        await self.attach()
        await self._chrome.call("Target.closeTarget", timeout=5, targetId=old)

    async def back(self) -> str:
        history = await self._act("Page.getNavigationHistory")
        if history["currentIndex"] < 1:
            raise UsageError("There is no page to go back to.")
        entry = history["entries"][history["currentIndex"] - 1]
        self._loaded.clear()
        await self._act("Page.navigateToHistoryEntry", entryId=entry["id"])
        await self._settled(started=True)
        return await self._where()

    async def snapshot(self, *, full: bool = False) -> str:
        self._check_dialog()
        frames = await self._seen("Page.getFrameTree")
        self._refs, lines = {}, []
        for frame in _frames(frames["frameTree"]):
            try:
                tree = await self._seen("Accessibility.getFullAXTree", frameId=frame)
            except HermesError as error:
                if _FRAME_GONE not in str(error):
                    raise
                continue  # between the two questions the page has replaced it
            lines += self._lines(tree["nodes"], full=full)
        text, limit = "\n".join(lines), FULL if full else SHORT
        if len(text) > limit:
            more = "" if full else "; browser_snapshot with full=true shows more"
            text = f"{text[:limit]}\n[Cut: {limit} of {len(text)} characters{more}.]"
        if not text and "pdf" in str(await self._evaluate("document.contentType")):
            return "The page is a PDF, which is not readable here: use web_extract."
        return text or "The page is empty."

    async def click(self, ref: str) -> str:
        if await self._on(ref, _CHOOSE):
            return await self._where()
        x, y = await self._place(ref)
        mouse: dict[str, Any] = {"x": x, "y": y, "button": "left", "clickCount": 1}
        await self._act("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self._loading.clear()
        self._loaded.clear()
        await self._act("Input.dispatchMouseEvent", type="mousePressed", **mouse)
        await self._act("Input.dispatchMouseEvent", type="mouseReleased", **mouse)
        await self._settled()
        return await self._where()

    async def type(self, ref: str, text: str) -> str:
        filled = await self._on(ref, _FILL, text)
        if filled == "type":
            await self._act("Input.insertText", text=text)
        elif filled != "set":
            raise UsageError(f"{ref} {filled}", hint="Use browser_click or browser_press instead.")
        return f"Typed into {ref}."

    async def press(self, key: str) -> str:
        *modifiers, name = key.split("+") if key != "+" else ["+"]
        bits = {"alt": 1, "control": 2, "ctrl": 2, "meta": 4, "shift": 8}
        held = sum({bits.get(each.strip().lower(), 0) for each in modifiers})
        known = _KEYS.get(name.strip().lower())
        if known is None and len(name) != 1:
            raise UsageError(
                f"There is no key {name}.", hint=f"Keys: {', '.join(_KEYS)}, or a letter."
            )
        shown, code, text = known or (name, ord(name.upper()) % 256, "" if held & 7 else name)
        event: dict[str, Any] = {"key": shown, "windowsVirtualKeyCode": code, "modifiers": held}
        self._loading.clear()
        self._loaded.clear()
        pressed = event | ({"text": text} if text else {})
        await self._act(
            "Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **pressed
        )
        await self._act("Input.dispatchKeyEvent", type="keyUp", **event)
        await self._settled()
        return await self._where()

    async def scroll(self, direction: str) -> str:
        signs = {"down": "0, 0.8", "up": "0, -0.8", "right": "0.8, 0", "left": "-0.8, 0"}
        if direction not in signs:
            raise UsageError("The direction is up, down, left or right.")
        x, y = signs[direction].split(", ")
        await self._evaluate(f"window.scrollBy(innerWidth * {x}, innerHeight * {y})")
        at = "`At ${Math.round(scrollY)} of ${document.body.scrollHeight}.`"
        return str(await self._evaluate(at))

    async def images(self) -> str:
        found = await self._evaluate(_IMAGES)
        lines = [f"{src[:300]}  {alt[:100]}  {w}x{h}" for src, alt, w, h in found or ()]
        return "\n".join(lines) or "The page has no pictures."

    async def screenshot(self) -> bytes:
        answer = await self._seen("Page.captureScreenshot", format="jpeg", quality=70)
        return base64.b64decode(answer["data"])

    async def console(self, expression: str | None, *, clear: bool = False) -> str:
        if expression:
            self._check_dialog()
            return msgspec.json.encode(await self._evaluate(expression)).decode()[:20_000]
        await self._check_origin()
        said = "\n".join(self._said)
        if clear:
            self._said.clear()
        return said or "The page said nothing."

    async def dialog(self, action: str, text: str) -> str:
        if self._dialog is None:
            raise UsageError("No dialog is open.")
        if action not in {"accept", "dismiss"}:
            raise UsageError("The action is accept or dismiss.")
        answered = self._dialog
        await self._call("Page.handleJavaScriptDialog", accept=action == "accept", promptText=text)
        if self._dialog is answered:  # the page may have opened the next one
            self._closed_dialog()
        await self._settled()
        return await self._where()

    async def _where(self) -> str:
        if self._dialog is not None:
            return self._dialog_text()
        try:
            found = await self._evaluate("[location.href, document.title]")
            return f"{found[1]}\n{found[0]}\n\n{await self.snapshot()}"
        except HermesError:
            if self._dialog_opened.is_set():
                return self._dialog_text()
            raise

    def _dialog_text(self) -> str:
        assert self._dialog is not None
        kind, said = self._dialog.get("type", "dialog"), str(self._dialog.get("message", ""))[:1000]
        return f"A dialog is open ({kind}): {said}\nAnswer it with browser_dialog."

    def _check_dialog(self) -> None:
        if self._dialog is not None:
            raise HermesError(self._dialog_text())

    def _node(self, ref: str) -> int:
        self._check_dialog()
        node = self._refs.get(ref.strip().removeprefix("@").removeprefix("ref="))
        if node is None:
            raise UsageError(
                f"There is no {ref} on the page.", hint="Look again: browser_snapshot."
            )
        return node

    async def _place(self, ref: str) -> tuple[float, float]:
        node = self._node(ref)
        await self._act("DOM.scrollIntoViewIfNeeded", backendNodeId=node)
        quads = (await self._act("DOM.getContentQuads", backendNodeId=node))["quads"]
        if not quads:
            raise HermesError(f"{ref} cannot be seen.", hint=_LOOK_AGAIN)
        quad = quads[0]
        return sum(quad[0::2]) / 4, sum(quad[1::2]) / 4

    async def _evaluate(self, expression: str) -> Any:
        answer = await self._seen(
            "Runtime.evaluate",
            expression=expression,
            returnByValue=True,
            awaitPromise=True,
            userGesture=True,
            timeout=5_000,
        )
        if trouble := answer.get("exceptionDetails"):
            said = trouble.get("exception", {}).get("description") or trouble.get("text", "")
            raise HermesError(f"The page answered with an error: {said[:500]}")
        return answer["result"].get("value")

    async def _on(self, ref: str, function: str, *arguments: str) -> Any:
        """Call a function on something of the page."""
        found = await self._seen("DOM.resolveNode", backendNodeId=self._node(ref))
        answer = await self._seen(
            "Runtime.callFunctionOn",
            objectId=found["object"]["objectId"],
            functionDeclaration=function,
            arguments=[{"value": each} for each in arguments],
            returnByValue=True,
        )
        return answer["result"].get("value")

    async def _seen(self, method: str, /, **params: Any) -> dict[str, Any]:
        """Ask for something; `HermesError` if a dialog is in the way."""
        answer = await self._act(method, **params)
        await self._check_origin()
        if not answer:
            self._check_dialog()
        return answer

    async def _check_origin(self) -> None:
        """Leave a page that came from where the browser may not go, whatever its name said."""
        if self._private:
            try:
                await self._address_of("127.0.0.1", 80)
            except HermesError:
                await self._renew()
                raise ToolRefused("The page came from a private network and was closed.") from None

    async def _call(self, method: str, /, within: float = 0.0, **params: Any) -> dict[str, Any]:
        seconds = within or self._settings().command_timeout
        try:
            return await self._chrome.send(method, params, self._session, seconds)
        except Unresponsive:
            self._stuck = True
            raise

    async def _act(self, method: str, /, **params: Any) -> dict[str, Any]:
        """Do something that a dialog may hold up: then it is the dialog that counts."""
        call = asyncio.ensure_future(self._call(method, **params))
        opened = asyncio.ensure_future(self._dialog_opened.wait())
        try:
            await asyncio.wait({call, opened}, return_when=asyncio.FIRST_COMPLETED)
            if call.done():
                return call.result()
            return {}
        finally:
            opened.cancel()
            if not call.done():
                self._keep(call)

    @property
    def _patience(self) -> float:
        """Seconds that a page may take to load."""
        return min(LOADING, self._settings().command_timeout)

    async def _settled(self, *, started: bool = False) -> None:
        """Wait until what an action began to load is there; a dialog ends the waiting."""
        if not started:
            try:
                async with asyncio.timeout(STARTS):
                    await self._loading.wait()
            except TimeoutError:
                return
        loaded = asyncio.ensure_future(self._loaded.wait())
        opened = asyncio.ensure_future(self._dialog_opened.wait())
        await asyncio.wait(
            {loaded, opened}, timeout=self._patience, return_when=asyncio.FIRST_COMPLETED
        )
        loaded.cancel()
        opened.cancel()

    def _keep(self, task: asyncio.Future[Any]) -> None:
        kept = asyncio.ensure_future(asyncio.wait({task}))
        self._beside.add(kept)
        kept.add_done_callback(self._beside.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _heard(self, method: str, params: dict[str, Any]) -> None:
        match method:
            case "Page.frameStartedLoading" | "Page.frameStartedNavigating":
                self._loading.set()
            case "Page.loadEventFired":
                self._loaded.set()
            case "Page.javascriptDialogOpening" if params.get("type") == "beforeunload":
                # Who goes elsewhere wants to leave.
                self._keep(
                    asyncio.ensure_future(self._call("Page.handleJavaScriptDialog", accept=True))
                )
            case "Page.javascriptDialogOpening":
                self._dialog = params
                self._dialog_opened.set()
                self._keep(asyncio.ensure_future(self._forgotten(params)))
            case "Page.javascriptDialogClosed":
                self._closed_dialog()
            case "Runtime.consoleAPICalled":
                words = [str(a.get("value", a.get("description", ""))) for a in params["args"]]
                self._said.append(f"{params['type']}: {' '.join(words)[:500]}")
            case "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                text = details.get("exception", {}).get("description") or details.get("text", "")
                self._said.append(f"error: {text[:500]}")
            case "Network.responseReceivedExtraInfo":
                space = params.get("resourceIPAddressSpace")
                self._private |= space in {"Loopback", "Local", "Private"}
            case "Fetch.requestPaused":
                self._keep(asyncio.ensure_future(self._asked(params)))

    def _closed_dialog(self) -> None:
        self._dialog = None
        self._dialog_opened.clear()

    async def _forgotten(self, dialog: dict[str, Any]) -> None:
        """Close a dialog by policy, or when nobody has answered it for long."""
        settings = self._settings()
        if settings.dialog_policy == "must_respond":
            await asyncio.sleep(settings.dialog_timeout_s)
        if self._dialog is dialog:
            accept = settings.dialog_policy == "accept"
            await self._call("Page.handleJavaScriptDialog", accept=accept)

    async def _asked(self, params: dict[str, Any]) -> None:
        request, parts = params["requestId"], urlsplit(params["request"]["url"])
        try:
            if parts.scheme in {"http", "https", "ws", "wss"}:
                await self._address_of(parts.hostname or "", parts.port or 443)
            elif parts.scheme not in {"data", "blob", "about"}:
                raise ToolRefused("Only web pages.")
        except HermesError:
            await self._call("Fetch.failRequest", requestId=request, errorReason="AccessDenied")
        else:
            await self._call("Fetch.continueRequest", requestId=request)

    def _lines(self, nodes: list[dict[str, Any]], *, full: bool) -> list[str]:
        by_id = {node["nodeId"]: node for node in nodes}
        lines: list[str] = []
        stack = [(nodes[0]["nodeId"], 0, "")] if nodes else []
        while stack:
            node_id, depth, above = stack.pop()
            node = by_id.get(node_id)
            if node is None:
                continue
            line, name = self._line(node, above, full=full)
            if line:
                lines.append("  " * min(depth, 12) + line)
            inner = depth + 1 if line else depth
            stack += [(child, inner, name or above) for child in reversed(node.get("childIds", ()))]
        return lines

    def _line(self, node: dict[str, Any], above: str, *, full: bool) -> tuple[str, str]:
        role = node.get("role", {}).get("value", "")
        name = " ".join(str(node.get("name", {}).get("value", "")).split())
        if not full and len(name) > NAME:
            name = f"{name[:NAME]}…"
        states = {each["name"]: each["value"].get("value") for each in node.get("properties", ())}
        # What one writes into although it is no field: editors.
        written = states.get("editable") == "richtext" and states.get("focusable") is True
        role = "textbox" if written and role in _SKIPPED else role
        if (
            role == "InlineTextBox"
            or node.get("ignored")
            or (role in _SKIPPED and not (full and name))
        ):
            return "", ""
        if role == "StaticText":
            return ("" if name in above else name), ""
        words = [role, f'"{name}"'] if name else [role]
        value = node.get("value", {}).get("value")
        if value not in {None, ""} and str(value) != name:
            words.append(f"= {str(value)[:200]}")
        for item, state in states.items():
            shown = item in {"checked", "disabled", "expanded", "selected", "level", "required"}
            if shown and state not in {False, "false", None}:
                words.append(f"[{item}{'' if state is True else f'={state}'}]")
        if (role in _ACTED_ON or written) and "backendDOMNodeId" in node:
            ref = f"e{len(self._refs) + 1}"
            self._refs[ref] = node["backendDOMNodeId"]
            words.insert(0, f"@{ref}")
        elif not name and not full:
            return "", ""
        return " ".join(words), name


def _frames(tree: dict[str, Any]) -> list[str]:
    inner = [frame for child in tree.get("childFrames", ()) for frame in _frames(child)]
    return [tree["frame"]["id"], *inner]
