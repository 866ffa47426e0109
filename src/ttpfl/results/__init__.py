"""The results of comparisons: plain data in columns, their file and its checks. No torch."""
