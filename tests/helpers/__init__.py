"""What several tests build, run or compare with."""
