"""Wire protocols. Each module encodes requests and decodes streams, and knows no sibling."""
