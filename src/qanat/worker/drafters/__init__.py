"""Who drafts tokens: one file each, behind one protocol."""
