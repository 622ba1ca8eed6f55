"""Five stages, one loop; the only part of the package that knows Lightning Fabric."""
