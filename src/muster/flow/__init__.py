"""What people build on top of a fleet: recipes that use it only by its public face, as anybody else could."""
