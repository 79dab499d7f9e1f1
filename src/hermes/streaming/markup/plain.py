"""Text without markup: what is left is still pleasant to read."""

from hermes.domain.platforms import LengthUnit
from hermes.streaming.markup import scan
from hermes.streaming.markup.inline import Node, parse
from hermes.streaming.units import clean, is_blank, length


def plain(markdown: str) -> str:
    """Return `markdown` without markup; its own text if nothing else would be left."""
    markdown = clean(markdown)
    text = "\n".join(_block(block) for block in scan.read(markdown)).strip("\n").rstrip()
    return markdown.strip() if is_blank(text) else text


def render(markdown: str) -> str:
    return plain(markdown)


def visible_length(rendered: str, unit: LengthUnit) -> int:
    return length(rendered, unit)


def weight(markdown: str, unit: LengthUnit) -> int:
    return length(markdown, unit) + scan.ROOM * markdown.count("|")


def _block(block: scan.Block) -> str:
    match block:
        case scan.Text(text) | scan.Heading(text):
            return _inline(text)
        case scan.Item():
            box = "" if block.done is None else ("[x] " if block.done else "[ ] ")
            return f"{block.indent}{block.marker} {box}{_inline(block.text)}"
        case scan.QuoteBlock(blocks):
            lines = "\n".join(_block(inner) for inner in blocks)
            return "\n".join(f">{line}" for line in lines.split("\n"))
        case scan.Code(text=text) | scan.Rule(text):
            return text
        case scan.Table():
            return scan.lay_out(block)


def _inline(text: str) -> str:
    return "".join(_node(node) for node in parse(text).nodes)


def _node(node: Node) -> str:
    inner = node.text or "".join(_node(child) for child in node.children)
    if node.kind in ("link", "image"):
        return _link(inner, node.url)
    return inner


def _link(label: str, url: str) -> str:
    if not url or label == url or label == url.removeprefix("mailto:"):
        return label
    return f"{label} ({url})" if label.strip() else url
