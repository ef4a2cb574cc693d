"""The jobs of the pipeline: `python -m aioproduce.spark <job>`, or `spark-submit aioproduce/spark/submit.py <job>`.

| module | what is there |
|---|---|
| `running` | what all jobs share: arguments, signals, the summary, exit codes |
| `session` | the Spark session that they run in |
| `progress` | the line that tells how far a stream is |
| `land` | Kafka into the lake |

A job is a module with `HELP`, `add_arguments(parser)`, `SETTINGS` (of Spark), `NEEDS_CONNECTOR` and
`run(args, spark) -> Summary`.
"""
