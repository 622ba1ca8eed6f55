"""Tables of the paper and beyond, each made by one command."""
