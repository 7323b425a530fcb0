"""What demo, benches and end-to-end tests share: running, comparing answers, taking stock."""
