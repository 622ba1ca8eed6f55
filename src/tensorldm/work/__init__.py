"""Many subjects: shared out to workers, written down in a journal, one run per output folder."""
