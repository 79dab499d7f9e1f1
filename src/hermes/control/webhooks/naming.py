"""How a delivery is called: in the ledger, the inbox and the outbox."""

from hermes.domain.channel import Chat, ChatKind, Sender
from hermes.domain.inbound import InboundMessage
from hermes.domain.turn_options import TurnOptions
from hermes.domain.webhooks import HookDelivery

__all__ = ["PLATFORM", "Key", "entry_id_of", "key_of", "message_of", "origin_of"]

PLATFORM = "webhook"

Key = tuple[str, str]
"""Route and the sender's id."""


def key_of(delivery: HookDelivery) -> Key:
    """Return what a delivery is known by."""
    return delivery.route, delivery.delivery_id


def entry_id_of(delivery: HookDelivery) -> str:
    """Return the id of the outbox entry with the result of this attempt."""
    return f"webhook:{delivery.route}:{delivery.delivery_id}#{delivery.attempt}"


def message_of(delivery: HookDelivery) -> InboundMessage:
    """Return the message by which the agent learns of this attempt."""
    route, delivery_id = key_of(delivery)
    return InboundMessage(
        platform=PLATFORM,
        account=route,
        native_id=f"{delivery_id}#{delivery.attempt}",
        chat=Chat(kind=ChatKind.WEBHOOK, id=f"webhook:{route}:{delivery_id}"),
        sender=Sender(id=f"webhook:{route}", name=route),
        text=delivery.prompt,
        sent_at=delivery.received_at,
        options=TurnOptions(title=False),
    )


def origin_of(message: InboundMessage) -> tuple[str, str, int]:
    """Return route, delivery id and attempt of such a message."""
    delivery_id, _, attempt = message.native_id.rpartition("#")
    return message.account, delivery_id, int(attempt)
