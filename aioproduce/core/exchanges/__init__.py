"""What is asked of brokers, one module a kind of request; `exchange` is the shape that all of them have."""
