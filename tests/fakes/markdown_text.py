"""Markdown as hypothesis makes it up."""

from hypothesis import strategies as st

__all__ = ["TOKENS", "long_markdown", "markdown"]

TOKENS = [
    "*", "**", "***", "_", "__", "~~", "||", "`", "``", "```", "```py\n", "~~~\n", "\n", "\n\n",
    "[", "]", "(", ")", "](", "![", "[a](https://x.y/z?q=1&r=2)", "<https://x.y>",
    "https://x.y/a_b", "<b>", "</b>", "&amp;", "<", ">", "&", "> ", "# ", "### t #", "- ",
    "- [x] ", "1. ", "---", "***\n", "|", "| a | b |\n", "|---|---|\n", "|a|", "\\", "\\*", '"',
    "'", " ", "    ", "\t", "word", "Größe", "👩‍👩‍👧", "🇩🇪", "é", "javascript:alert(1)", "\x00",
    "\ud800", "\u200b", "漢字", "$x$",
]  # fmt: skip

markdown = st.lists(st.one_of(st.sampled_from(TOKENS), st.text(max_size=4)), max_size=30).map(
    "".join
)
_BLOCKS = [
    "```python\n" + "x = 1\n" * 30 + "```\n",
    "\n\n",
    "| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 30,
    "👩‍👩‍👧‍👦" * 20,
    "🇩🇪" * 30,
    "e\u0301" * 40,
    "👍🏽" * 20,
    "x" * 300,
]
long_markdown = st.lists(
    st.one_of(
        markdown,
        st.from_regex(r"[A-Za-z ,]{20,120}\. ", fullmatch=True),
        st.from_regex(r"\[[a-z]{1,10}\]\(https://[a-z]{1,20}\.org\)", fullmatch=True),
        st.sampled_from(_BLOCKS),
    ),
    max_size=25,
).map("".join)
