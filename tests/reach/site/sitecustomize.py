"""Put probes into what a child process of a test imports: `tests/reach/probes.py` puts this on its path."""

import os
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

if "AIOPRODUCE_REACH_HITS" in os.environ:
    spec = spec_from_file_location("_reach_probes", Path(__file__).parent.parent / "probes.py")
    assert spec is not None
    assert spec.loader is not None
    probes = module_from_spec(spec)
    spec.loader.exec_module(probes)
    probes.install(Path(os.environ[probes.FOLDER]), Path(os.environ[probes.HITS]))
