"""Chat platforms: one folder each, alike in shape and strangers to each other."""
