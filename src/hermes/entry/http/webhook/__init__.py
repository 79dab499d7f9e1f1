"""The receiver of webhooks: HTTP around the `WebhookDesk`."""
