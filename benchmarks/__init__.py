"""pyggml beside other libraries on the same networks, data and threads: ``python -m benchmarks``."""
