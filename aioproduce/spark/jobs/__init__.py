"""The jobs of the pipeline: `python -m aioproduce.spark <job>`, or `spark-submit aioproduce/spark/submit.py <job>`.

| module | contents |
|---|---|
| `running` | common to all jobs: arguments, signals, the summary, exit codes |
| `session` | the Spark session that they run in |
| `progress` | the progress line of a stream |
| `land` | Kafka into the lake |

A job is a module with `HELP`, `add_arguments(parser)`, `SETTINGS` (of Spark), `NEEDS_CONNECTOR` and
`run(args, spark) -> Summary`.
"""
