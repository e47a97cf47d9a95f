"""Labels from people: which images to have labelled next, and a page to go through pseudo-labels."""
