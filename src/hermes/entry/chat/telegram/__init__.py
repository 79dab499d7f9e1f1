"""Telegram, over the plain HTTP Bot API."""
