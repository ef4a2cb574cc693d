"""The cluster as the producer sees it: brokers, topics, leaders, and the connections to them."""
