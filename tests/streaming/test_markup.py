"""Markdown in the dialects of chat platforms."""

import re
from html import unescape

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fakes.markdown_text import markdown
from fakes.surface import visible_length
from hermes.domain.entry_points import entry_points
from hermes.domain.errors import ConfigError
from hermes.domain.platforms import LengthUnit
from hermes.streaming.markup import GROUP, load_dialect

telegram_html = load_dialect("telegram_html")
plain = load_dialect("plain").render
ALLOWED = {"b", "i", "u", "s", "code", "pre", "a", "blockquote", "tg-spoiler"}
INSIDE_OF_CODE = {"pre": {"code"}, "code": set[str]()}
TAG = re.compile(r'<(/?)([a-z-]+)((?: [a-z]+="[^"<>]*")*)>')


def refused_by_telegram(html: str) -> str | None:
    """Say why Telegram would refuse `html`, as strictly as its documentation reads."""
    stack: list[str] = []
    at = 0
    for found in re.finditer("[<>&]", html):
        if found.start() < at:
            continue
        if found[0] == ">":
            return f"bare > at {found.start()}"
        if found[0] == "&":
            entity = re.compile(r"&(?:lt|gt|amp|quot|#x27);").match(html, found.start())
            if entity is None:
                return f"bare & at {found.start()}"
            at = entity.end()
            continue
        tag = TAG.match(html, found.start())
        if tag is None:
            return f"bare < at {found.start()}"
        at = tag.end()
        problem = _tag_problem(tag, stack)
        if problem:
            return problem
    return f"not closed: {stack}" if stack else None


def _tag_problem(tag: re.Match[str], stack: list[str]) -> str | None:
    closing, name, attributes = tag.groups()
    if name not in ALLOWED:
        return f"unknown tag {name}"
    if closing:
        return None if stack and stack.pop() == name else f"unexpected end of {name}"
    inside = stack[-1] if stack else ""
    problems = {
        f"{name} inside {inside}": inside in INSIDE_OF_CODE and name not in INSIDE_OF_CODE[inside],
        f"code inside {stack}": name in ("code", "pre") and set(stack) - {"pre", "blockquote"},
        f"{name} inside itself": name in stack,
        "link without address": name == "a" and not attributes.startswith(' href="'),
        f"attributes on {name}": attributes and name not in ("a", "code"),
        "language outside of pre": name == "code" and attributes and stack != ["pre"],
    }
    if problem := next((text for text, applies in problems.items() if applies), None):
        return problem
    stack.append(name)
    return None


def test_the_checker_itself_refuses_what_telegram_refuses() -> None:
    assert (
        refused_by_telegram('<b>x</b> &amp; <pre><code class="language-c">y</code></pre>') is None
    )
    for bad in (
        "<b>",
        "</b>",
        "<b><i></b></i>",
        "a < b",
        "&nbsp;",
        "<h1>x</h1>",
        "<code><b></b></code>",
    ):
        assert refused_by_telegram(bad)


@given(text=markdown)
@example("\\*\\")
@example("> ```\n> x")
@example("**a `b` c**")
@example("[`x`](https://a.b)")
@settings(max_examples=400, deadline=None)
def test_telegram_never_refuses_what_is_rendered_for_it(text: str) -> None:
    html = telegram_html.render(text)
    assert refused_by_telegram(html) is None, html
    html.encode("utf-8")


@pytest.mark.parametrize("name", sorted(entry_points(GROUP)))
@given(text=markdown)
@settings(max_examples=200, deadline=None)
def test_what_is_shown_is_never_longer_than_its_weight(name: str, text: str) -> None:
    dialect = load_dialect(name)
    for unit in (LengthUnit.UTF16, LengthUnit.CODEPOINTS):
        weight = dialect.weight(text, unit)
        assert visible_length(dialect, dialect.render(text), unit) <= weight
        assert visible_length(dialect, dialect.plain(text), unit) <= weight


@given(text=markdown)
@settings(deadline=None)
def test_plain_text_fits_in_bytes_too(text: str) -> None:
    text = text.replace("\ud800", "")
    dialect = load_dialect("plain")
    assert len(dialect.render(text).encode()) <= dialect.weight(text, LengthUnit.BYTES)


@given(text=markdown, more=markdown)
def test_weight_is_the_sum_over_the_parts(text: str, more: str) -> None:
    dialect, unit = load_dialect("telegram_html"), LengthUnit.UTF16
    assert dialect.weight(text, unit) + dialect.weight(more, unit) == dialect.weight(
        text + more, unit
    )


@given(
    words=st.lists(st.from_regex(r"[a-z]{3,8}", fullmatch=True), min_size=1, max_size=20),
    text=markdown,
)
@settings(deadline=None)
def test_words_survive_in_every_dialect(words: list[str], text: str) -> None:
    source = text.replace("(", "").replace("[", "") + "\n\n" + " ".join(words)
    for name in entry_points(GROUP):
        dialect = load_dialect(name)
        for shown in (dialect.render(source), dialect.plain(source)):
            assert all(word in shown for word in words)


def test_telegram_html_of_a_typical_answer() -> None:
    source = (
        "# Title\n\nSome **bold**, *thin*, ~~gone~~, ||hidden|| and `a < b` with "
        "[a link](https://x.y/?a=1&b=2).\n\n- one\n- [x] two\n  1. three\n\n"
        "> wise **words**\n\n```python\nif a < b: pass\n```\n\n---\nend & done"
    )
    assert telegram_html.render(source) == (
        "<b>Title</b>\n\nSome <b>bold</b>, <i>thin</i>, <s>gone</s>, "
        "<tg-spoiler>hidden</tg-spoiler>"
        ' and <code>a &lt; b</code> with <a href="https://x.y/?a=1&amp;b=2">a link</a>.\n\n'
        "• one\n☑ two\n  1. three\n\n<blockquote>wise <b>words</b></blockquote>\n\n"
        '<pre><code class="language-python">if a &lt; b: pass</code></pre>\n\n———\nend &amp; done'
    )


def test_words_with_underscores_and_addresses_stay_as_they_are() -> None:
    for text in (
        "snake_case_name and __init__.py of a_b",
        "https://x.y/a_b_c*d*",
        "2 * 3 * 4",
        "a*",
    ):
        assert "<" not in telegram_html.render(text).replace("<b>init</b>", "")
    assert telegram_html.render("see https://x.y/a_b_c now") == "see https://x.y/a_b_c now"


def test_links_that_telegram_would_not_open_are_written_out() -> None:
    assert telegram_html.render("[here](javascript:alert(1))") == "here (javascript:alert(1))"
    assert telegram_html.render("[doc](./README.md)") == "doc (./README.md)"
    assert (
        telegram_html.render("![cat](https://x.y/c.png)") == '<a href="https://x.y/c.png">cat</a>'
    )


def test_code_stands_outside_of_styles_and_quotes() -> None:
    assert telegram_html.render("**run `x` now**") == "<b>run </b><code>x</code><b> now</b>"
    assert telegram_html.render("> a\n> ```\n> b\n> ```\n> c") == (
        "<blockquote>a</blockquote>\n<pre>b</pre>\n<blockquote>c</blockquote>"
    )


def test_an_open_fence_is_shown_as_code_while_it_streams() -> None:
    assert telegram_html.render("```sh\nls") == '<pre><code class="language-sh">ls</code></pre>'


def test_tables_are_aligned_and_wide_ones_become_records() -> None:
    table = "| Name | Price |\n|---|--:|\n| Tea | 3 |\n| **Coffee** | 12 |"
    assert telegram_html.render(table) == (
        "<pre>Name    Price\n------  -----\nTea     3\nCoffee  12</pre>"
    )
    wide = f"| Item | Why |\n|---|---|\n| {'a' * 40} | {'b' * 40} |"
    assert plain(wide) == f"Item: {'a' * 40}\nWhy: {'b' * 40}"


def test_a_table_that_would_grow_too_much_is_not_laid_out() -> None:
    table = f"|a|b|\n|-|-|\n|{'x' * 40}|y|\n" + "|z|y|\n" * 20
    weight = telegram_html.weight(table, LengthUnit.UTF16)
    assert visible_length(telegram_html, telegram_html.render(table), LengthUnit.UTF16) <= weight
    assert len(plain(table)) <= weight


def test_a_bold_heading_is_bold_once() -> None:
    assert telegram_html.render("# a **b**") == "<b>a </b><b>b</b>"


def test_plain_text_keeps_the_addresses_of_links() -> None:
    assert (
        plain("**See** [docs](https://x.y) `now` <https://z.w>")
        == "See docs (https://x.y) now https://z.w"
    )


def test_slack_and_discord_have_their_own_marks() -> None:
    source = "## Hi\n**b** *i* [l](https://x.y) a<b"
    assert load_dialect("slack_mrkdwn").render(source) == "*Hi*\n*b* _i_ <https://x.y|l> a&lt;b"
    assert load_dialect("discord").render(source) == "### Hi\n**b** *i* [l](https://x.y) a<b"


def test_an_unknown_dialect_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="klingon"):
        load_dialect("klingon")


def test_a_hostile_text_takes_no_quadratic_time() -> None:
    for hostile in (
        "*a " * 1400,
        "[" * 4096,
        "`a``b" * 900,
        "[a](" * 1024,
        "**" * 2048,
        "> " * 2048,
    ):
        assert unescape(telegram_html.render(hostile))
