"""A service whose cluster goes away: `python -m examples.outage`."""
