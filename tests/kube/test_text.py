from app.kube.text import MAX_LENGTH, OTHER, BoundedLabels


def test_label_values_beyond_the_first_share_one():
    labels = BoundedLabels(limit=3)
    assert [labels.of("shop", name) for name in "abab"] == [("shop", name) for name in "abab"]
    assert labels.of("shop", "c") == ("shop", "c")
    assert [labels.of("shop", name) for name in ("d", "e", "a")] == [(OTHER, OTHER), (OTHER, OTHER), ("shop", "a")]


def test_long_values_are_cut_before_comparison():
    labels = BoundedLabels(limit=1)
    first = labels.of("x" * 1_000_000)
    assert first == ("x" * MAX_LENGTH,)
    assert labels.of("x" * 1_000_001) == first
