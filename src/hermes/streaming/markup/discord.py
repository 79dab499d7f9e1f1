"""Discord's Markdown: nearly the source itself; tables go into a code block.

Discord counts the source characters, so what is added is paid for by weight.
"""

from hermes.domain.platforms import LengthUnit
from hermes.streaming.markup.plain import FencedDialect

_MAX_LANGUAGE = 40


class DiscordMarkdown(FencedDialect):
    def weight(self, markdown: str, unit: LengthUnit) -> int:
        # A heading and a quote grow.
        grown = 3 * markdown.count("#") + 5 * markdown.count(">")
        return super().weight(markdown, unit) + grown

    def _heading(self, text: str) -> str:
        return f"### {text}"

    def _code(self, text: str, language: str) -> str:
        return super()._code(text, language[:_MAX_LANGUAGE])

    def _inline(self, text: str) -> str:
        return text


DIALECT = DiscordMarkdown()
