"""Reports and timelines in a browser of this machine."""
