"""The results of comparisons: plain data in columns, without torch."""
