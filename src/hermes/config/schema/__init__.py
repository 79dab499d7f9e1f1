"""The configuration, typed: one struct a section, one file a theme.

Defaults live here and nowhere else. A field whose name does not say it all
has a sentence under it, which `hermes config explain` shows.
"""

from hermes.config.schema.root import CONFIG_VERSION, Config

__all__ = ["CONFIG_VERSION", "Config"]
