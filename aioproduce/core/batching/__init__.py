"""Batches of records: memory, queues, sequences, and partition choice. Knows the cluster, but no request."""
