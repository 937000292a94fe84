"""pyggml beside other libraries, on the same networks and data: ``python -m benchmarks``."""
