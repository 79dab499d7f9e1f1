"""Identifiers: how each kind looks, made in one place."""

import secrets
import time


def new_session_id(now: float) -> str:
    """Return `YYYYMMDD_HHMMSS_<8 hex>` in local time, the form users know."""
    stamp = time.strftime("%Y%m%d_%H%M%S", time.localtime(now))
    return f"{stamp}_{secrets.token_hex(4)}"


def new_id(prefix: str) -> str:
    """Return `<prefix>_<24 hex>`, unique without coordination."""
    return f"{prefix}_{secrets.token_hex(12)}"


def new_turn_id() -> str:
    """Return `turn_<16 hex>`: each message carries one."""
    return f"turn_{secrets.token_hex(8)}"


def new_call_id() -> str:
    """Return an id for a tool call whose provider sent none, or sent one twice."""
    return new_id("call")
