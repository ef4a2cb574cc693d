"""aioproduce: an asyncio-native Kafka producer."""
