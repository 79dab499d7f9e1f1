"""The browser: a real Chromium over the DevTools protocol, one context for each session.

`chrome.py` starts it (or connects to another one) and carries messages, `page.py` is what tools do
with a page, `guard.py` is the proxy through which the browser's every connection goes, so that it
reaches only what the other tools may reach.
"""
