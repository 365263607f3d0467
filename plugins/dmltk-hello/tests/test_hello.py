from dmltk.testing import parametrize_with_checks


@parametrize_with_checks(["attack:hello"])
def test_hello(part, check):
    check(part)
