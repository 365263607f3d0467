"""A suite of attacks for dmltk."""

from dmltk.bench.suite import Item, Suite


def example() -> Suite:
    """A first look: toward another class, and away from the own one."""
    return Suite((Item("stax:solver=pgd,steps=10"), Item("misrank:steps=10")))
