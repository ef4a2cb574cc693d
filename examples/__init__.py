"""Programs that run; each file is one, `lake` is a folder of them."""
