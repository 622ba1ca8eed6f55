"""Pure measures of agreement, used by training, evaluation and report alike."""
