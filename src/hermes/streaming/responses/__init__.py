"""The Responses API on the wire: items, the resource, and the message being said."""
