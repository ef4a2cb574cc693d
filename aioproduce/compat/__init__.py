"""Drop-in replacements for the producers of other clients: their names, options, exceptions and results."""
