"""The command line: one verb a file, each a doorway to the package."""
