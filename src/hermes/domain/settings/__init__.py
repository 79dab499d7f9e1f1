"""Settings: everything in `config.yaml`, typed, each setting declared once.

A section of the file is a frozen struct. A field says the type, the default and, in the literal
below it, what it means (`hermes config explain` shows that). Defaults live here and nowhere else,
and the layers use these structs as they are: there are no copies to keep in step.

Settings are live: code reads them through `LiveSettings` at the moment of use, so a changed file
takes effect with the next message, turn or call. Settings that are read once when the gateway
starts are marked `AtStart[...]`, on a field or on a whole section; `hermes status` names those
that have changed since.

A key that nothing reads is not here. Keys known from elsewhere without an effect in this version
are listed in `config/known_keys.yaml`.
"""

from hermes.domain.settings.root import CONFIG_VERSION, Settings

__all__ = ["CONFIG_VERSION", "Settings"]
