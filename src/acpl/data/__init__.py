"""From files to tensors."""
