"""A protocol for dmltk."""

from dmltk.evaluation.protocols import Embedded, Layout, Sides, against


def example() -> Layout:
    """Adversarial queries against a gallery that holds their classes' clean pictures alone."""
    return Layout("query", arranged)


def arranged(clean: Embedded, adversarial: Embedded | None) -> Sides:
    """The sides of the retrieval.

    Args:
        clean: the whole test split.
        adversarial: those of its queries that were attacked.
    """
    assert adversarial is not None
    queries, gallery = adversarial.queries, clean.gallery
    shared = (gallery.labels[:, None] == queries.labels).any(1)
    some = Embedded(gallery.embeddings[shared], gallery.labels[shared], gallery.index[shared])
    return against(queries, some)
