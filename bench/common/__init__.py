"""Shared by demo, benchmarks and end-to-end tests: running, comparing answers, finding leaks."""
