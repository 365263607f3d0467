"""What the embedding spaces of a run hold: neighbours by class, distances, maps, adversaries."""
