"""Records in batches: memory, queues, sequences, where keyless records go. Knows the cluster, not the requests."""
