"""The jobs of `python -m aioproduce.spark <job>`: one module each, with `add_arguments()` and `run()`."""
