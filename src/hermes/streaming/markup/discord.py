"""Discord's Markdown: nearly the source itself; tables go into a code block.

Discord counts the source characters, so what is added is paid for by weight.
"""

from hermes.domain.platforms import LengthUnit
from hermes.streaming.markup import scan
from hermes.streaming.markup.plain import plain
from hermes.streaming.units import clean, is_blank, length

__all__ = ["plain", "render", "visible_length", "weight"]

_MAX_LANGUAGE = 40


def render(markdown: str) -> str:
    markdown = clean(markdown)
    text = "\n".join(_block(block) for block in scan.read(markdown)).strip("\n").rstrip()
    return markdown.strip() if is_blank(text) else text


def visible_length(rendered: str, unit: LengthUnit) -> int:
    return length(rendered, unit)


def weight(markdown: str, unit: LengthUnit) -> int:
    # A row of a table has a `|`, a fence that is left open needs closing, a heading grows.
    marks = (
        (scan.ROOM + 2) * markdown.count("|") + 3 * markdown.count("#") + 5 * markdown.count(">")
    )
    fences = markdown.count("```") + markdown.count("~~~")
    return length(markdown, unit) + marks + 9 * fences


def _block(block: scan.Block) -> str:
    match block:
        case scan.Text(text):
            return text
        case scan.Heading(text):
            return f"### {text}"
        case scan.Item():
            box = "" if block.done is None else ("☑ " if block.done else "☐ ")
            return f"{block.indent}{block.marker} {box}{block.text}"
        case scan.QuoteBlock(blocks):
            lines = "\n".join(_block(inner) for inner in blocks)
            return "\n".join(f"> {line}".rstrip() for line in lines.split("\n"))
        case scan.Code(language=language, text=text):
            return _fenced(text, language[:_MAX_LANGUAGE])
        case scan.Table():
            return _fenced(scan.lay_out(block), "")
        case scan.Rule():
            return block.text


def _fenced(text: str, language: str) -> str:
    body = text.replace("```", "'''")
    return f"```{language}\n{body}\n```"
