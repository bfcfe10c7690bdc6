import covey.data


def test_exported_names_are_sorted_and_there():
    names = covey.data.__all__
    assert names == sorted(names)
    assert all(hasattr(covey.data, name) for name in names)
