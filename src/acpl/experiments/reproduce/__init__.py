"""The paper's tables and figures from one command: what runs, what is kept of it, what is made of that."""
