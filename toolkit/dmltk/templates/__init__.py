"""One small part of each kind: what ``dmltk new plugin`` writes, under another name."""
