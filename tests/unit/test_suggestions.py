"""What is said of a name that is none: a short list whole, of a long one what is like it."""

from disqued.suggestions import FEW, LONGEST, listed, near

MANY = ["host", "hosts", "port", "password", "Password-File", *(f"other-{letter}" for letter in "abcdef")]


def test_a_short_list_is_told_whole():
    assert listed("verbs", ["add", "create"], "disqued --help", "ad") == "verbs are add, create"
    assert "zzz" not in listed("words", MANY[:FEW], "the page", "zzz")
    assert listed("words", MANY[:FEW], "the page").endswith("other-e")


def test_of_a_long_list_what_is_like_the_name_is_told_and_where_all_are():
    assert listed("words", MANY, "the page", "pasword") == (
        "did you mean password or Password-File? the page names all words"
    )
    assert listed("words", MANY, "the page", "HOTS") == "did you mean hosts or host? the page names all words"
    assert listed("words", MANY, "the page", "zzz") == "the page names all words"
    assert listed("words", MANY, "the page") == "the page names all words"


def test_case_means_nothing_and_names_are_told_as_they_are_written():
    assert near("PASSWORD-FILES", MANY)[0] == "Password-File"
    assert len(near("other-", MANY)) == 3


def test_a_name_without_end_costs_no_more_than_its_beginning():
    assert near("host" + "x" * 10_000_000, MANY) == []
    assert near("a" * LONGEST + "b" * 10, ["a" * LONGEST]) == ["a" * LONGEST]
