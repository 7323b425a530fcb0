"""The peers, started and stopped by the benchmark."""
