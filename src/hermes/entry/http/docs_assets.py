"""Style and script of the page that shows the API; nothing is loaded from elsewhere."""

__all__ = ["SCRIPT", "STYLE"]

STYLE = """
:root {
  color-scheme: light dark;
  --back: #fbfaf8; --card: #fff; --line: #e4e0d8; --text: #22201c; --soft: #6d675c;
  --accent: #8a4b12; --code: #f4f1eb;
  --get: #1f6f54; --post: #2b5fb0; --patch: #8a6a00; --put: #8a6a00; --delete: #a8322d;
}
@media (prefers-color-scheme: dark) {
  :root {
    --back: #16150f; --card: #1e1d17; --line: #35332a; --text: #ece8dd; --soft: #a39d8e;
    --accent: #e0a264; --code: #272519;
    --get: #63c79f; --post: #82aef0; --patch: #d8b84a; --put: #d8b84a; --delete: #ef8a83;
  }
}
* { box-sizing: border-box; }
html { scroll-padding-top: 1rem; }
body {
  margin: 0; background: var(--back); color: var(--text);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
}
a { color: var(--accent); text-decoration: none; }
a:hover { text-decoration: underline; }
code, pre { font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace; font-size: .86em; }
.frame {
  display: grid; grid-template-columns: 17rem minmax(0, 1fr); max-width: 78rem; margin: auto;
}
nav {
  position: sticky; top: 0; align-self: start; max-height: 100vh; overflow: auto;
  padding: 2rem 1rem 2rem 1.5rem; font-size: .9rem;
}
nav h2 {
  margin: 1.2rem 0 .3rem; font-size: .74rem; letter-spacing: .08em; text-transform: uppercase;
  color: var(--soft);
}
nav a { display: block; padding: .1rem 0; color: var(--text); overflow-wrap: anywhere; }
main { padding: 2rem 1.5rem 6rem; }
h1 { margin: 0; font-size: 2rem; letter-spacing: -.02em; }
h1 small { font-size: .9rem; font-weight: 400; color: var(--soft); letter-spacing: 0; }
.lead { color: var(--soft); max-width: 46rem; }
main > h2 { margin: 2.6rem 0 .8rem; font-size: 1.25rem; }
main > h2::first-letter { text-transform: uppercase; }
input {
  width: 100%; padding: .55rem .8rem; font: inherit; color: inherit; background: var(--card);
  border: 1px solid var(--line); border-radius: .5rem;
}
details {
  background: var(--card); border: 1px solid var(--line); border-radius: .6rem;
  margin: 0 0 .6rem; overflow: hidden;
}
summary {
  display: flex; gap: .8rem; align-items: baseline; padding: .6rem .9rem; cursor: pointer;
  list-style: none;
}
summary::-webkit-details-marker { display: none; }
summary:hover { background: var(--code); }
summary .path { font-weight: 600; overflow-wrap: anywhere; }
summary .what { color: var(--soft); margin-left: auto; text-align: right; font-size: .9rem; }
.method { font-weight: 700; min-width: 4.2rem; }
.get { color: var(--get); } .post { color: var(--post); } .put { color: var(--put); }
.patch { color: var(--patch); } .delete { color: var(--delete); }
.inside { padding: .2rem .9rem 1rem; border-top: 1px solid var(--line); }
h4 {
  margin: 1rem 0 .3rem; font-size: .74rem; letter-spacing: .08em; text-transform: uppercase;
  color: var(--soft);
}
table { width: 100%; border-collapse: collapse; font-size: .9rem; }
td { padding: .35rem .6rem .35rem 0; vertical-align: top; border-top: 1px solid var(--line); }
tr:first-child td { border-top: 0; }
td:first-child { width: 13rem; overflow-wrap: anywhere; }
.need { color: var(--delete); font-size: .78rem; }
.soft { color: var(--soft); }
.tag {
  display: inline-block; padding: 0 .5rem; border: 1px solid var(--line); border-radius: 1rem;
  font-size: .78rem; color: var(--soft);
}
.curl { position: relative; }
pre { margin: 0; padding: .8rem; background: var(--code); border-radius: .5rem; overflow-x: auto; }
button {
  position: absolute; top: .45rem; right: .45rem; font: inherit; font-size: .78rem; cursor: pointer;
  color: var(--soft); background: var(--card); border: 1px solid var(--line); border-radius: .4rem;
}
[hidden] { display: none !important; }
@media (max-width: 52rem) {
  .frame { display: block; } nav { display: none; }
  summary { flex-wrap: wrap; } summary .what { margin-left: 0; text-align: left; width: 100%; }
}
"""

SCRIPT = """
"use strict";
const search = document.getElementById("search");
const cards = [...document.querySelectorAll("details")];
search.addEventListener("input", () => {
  const words = search.value.toLowerCase().split(/\\s+/).filter(Boolean);
  for (const card of cards) {
    const text = card.dataset.words;
    card.hidden = !words.every((word) => text.includes(word));
  }
});
const open = () => {
  const card = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (card && card.tagName === "DETAILS") {
    card.open = true;
    card.scrollIntoView({ behavior: "instant" });
  }
};
for (const example of document.querySelectorAll(".curl pre")) {
  example.textContent = example.textContent.replace("http://127.0.0.1:8642", location.origin);
}
addEventListener("hashchange", open);
open();
for (const button of document.querySelectorAll("button")) {
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.nextElementSibling.textContent);
    button.textContent = "copied";
    setTimeout(() => { button.textContent = "copy"; }, 1200);
  });
}
"""
