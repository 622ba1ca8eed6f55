"""Parameters only: the layers and networks of the model."""
