"""The whole pipeline as one program: services and files, a real Kafka, Spark, a lake, and an audit of it."""
