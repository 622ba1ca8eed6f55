"""The learned rivals: networks, losses and sampling of each in a file; training, bundles and the door are shared."""
