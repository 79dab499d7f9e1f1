"""Slack's mrkdwn: one star for bold, `<url|label>` for links, three characters escaped."""

import re
from html import escape

from hermes.domain.platforms import LengthUnit
from hermes.streaming.markup.inline import Node, parse, text_of
from hermes.streaming.markup.plain import FencedDialect

_SAFE_URL = re.compile(r"(?:https?://|mailto:|tel:)[^\s|<>]+$", re.IGNORECASE)
_STYLES = {"strong": "*", "em": "_", "strike": "~"}


class SlackMrkdwn(FencedDialect):
    bullet = "•"
    rule = "———"

    def weight(self, markdown: str, unit: LengthUnit) -> int:
        escapes = 4 * markdown.count("&") + 3 * markdown.count("<") + 5 * markdown.count(">")
        # A heading gets stars.
        return super().weight(markdown, unit) + escapes + markdown.count("#")

    def _heading(self, text: str) -> str:
        bare = self._text(text_of(parse(text).nodes)).strip()
        return f"*{bare}*" if bare else ""

    def _code(self, text: str, language: str) -> str:  # noqa: ARG002 (Slack knows none)
        return super()._code(text, "")

    def _node(self, node: Node) -> str:
        if node.kind in ("link", "image"):
            return self._link(node.text or text_of(node.children), node.url)
        inner = super()._node(node)
        mark = _STYLES.get(node.kind, "")
        if node.kind == "code":
            inner, mark = inner.replace("`", "'"), "`"
        return f"{mark}{inner}{mark}" if inner.strip() else inner

    def _link(self, label: str, url: str) -> str:
        shown, target = self._text(label.replace("|", "/")), self._text(url)
        if _SAFE_URL.match(url):
            return f"<{target}|{shown}>" if label.strip() and label != url else f"<{target}>"
        return shown if not url or label == url else f"{shown} ({target})"

    def _text(self, text: str) -> str:
        return escape(text, quote=False)


DIALECT = SlackMrkdwn()
