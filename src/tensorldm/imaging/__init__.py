"""Files and spaces: images, gradient tables, grids, masks and folder layouts."""
