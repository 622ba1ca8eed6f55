"""Looking at reconstructions in the browser: a page on the loopback address, and the main job done in it."""
