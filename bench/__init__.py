"""Benchmarks: each figure beside a bare baseline measured in the same run."""
