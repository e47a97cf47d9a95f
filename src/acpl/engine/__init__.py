"""The loop that trains any method: steps, precision, inference over pools, the run folder."""
