"""Published experiments run again, small: the numbers of the page beside ours."""
