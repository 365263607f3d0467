"""The attacks of torchattacks on embeddings, for dmltk."""
