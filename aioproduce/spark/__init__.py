"""From Spark to Kafka and from Kafka to a lake: the sink `format("aioproduce")` and the jobs.

Needs the extra `spark`; nothing else of aioproduce imports it.
"""
