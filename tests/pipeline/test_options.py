"""What a user of Spark may say, and what is answered where it is not allowed."""

import pytest

from disqued.pipeline.connector.options import OPTIONS, Option, Use, read_options
from tests.integration.daemon import ROOT

NODE = {"address": "127.0.0.1:7711"}


def test_every_option_has_its_default() -> None:
    options = read_options(NODE, Use.READ)
    assert options["address"] == ("127.0.0.1:7711",)
    assert (options["queues"], options["states"], options["pipeline"]) == (("*",), ("queued", "active"), 1000)


def test_names_are_known_in_whatever_case_and_lists_have_commas() -> None:
    given = {"ADDRESS": "a:1, b", "minpartitions": "3", "Queues": "mail,orders-*"}
    options = read_options(given, Use.READ)
    assert (options["address"], options["minPartitions"]) == (("a:1", "b"), 3)
    assert options["queues"] == ("mail", "orders-*")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "the option address is missing; allowed: host:port of a node"),
        (NODE | {"queues": str(["mail"])}, "the option queues cannot be "),
        (NODE | {"queues": str(("mail", "sms"))}, "the option queues cannot be "),
        ({"address": ""}, "the option address: nothing stands beside a comma; allowed: host:port"),
        ({"address": "here:http"}, "the option address: 'here:http' is no address of a node"),
        (NODE | {"queus": "q"}, "disqued has no option 'queus'; options for spark.read are address, user"),
        (NODE | {"ttl": "5"}, "the option ttl is not for spark.read; options for spark.read are address"),
        (NODE | {"pipeline": "0"}, "the option pipeline cannot be '0'; allowed: 1 to 100000 commands"),
        (NODE | {"pipeline": "many"}, "the option pipeline cannot be 'many'; allowed: 1 to 100000"),
        (NODE | {"states": "acked"}, "the option states cannot be 'acked'; allowed: queued, active or both"),
        (NODE | {"queues": "a,,b"}, "the option queues cannot be 'a,,b'; allowed: names or patterns"),
    ],
)
def test_what_is_not_allowed_is_refused_and_told(given: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match="option") as refused:
        read_options(given, Use.READ)
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("queus", "did you mean queue? "),
        ("zzz", "docs/reference/spark.md names all options for df.write and df.writeStream"),
    ],
)
def test_of_many_options_those_are_named_that_may_be_meant(name: str, said: str) -> None:
    with pytest.raises(ValueError, match="has no option") as refused:
        read_options(NODE | {name: "yes"}, Use.WRITE)
    assert str(refused.value).startswith(f"disqued has no option {name!r}; {said}")
    assert str(refused.value).endswith("docs/reference/spark.md names all options for df.write and df.writeStream")


def test_a_password_is_in_no_error() -> None:
    with pytest.raises(ValueError, match="option address") as refused:
        read_options({"address": "disqued://:hush@here:http"}, Use.READ)
    assert "hush" not in str(refused.value)


def test_what_spark_passes_on_is_no_error() -> None:
    assert read_options(NODE | {"checkpointlocation": "/tmp/x"}, Use.WRITE)["twoPhase"] is True


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_the_page_tells_every_option_with_its_default(option: Option) -> None:
    sections = (ROOT / "docs/reference/spark.md").read_text().split("\n## ")
    lines = [line for section in sections if section.startswith("Options") for line in section.splitlines()]
    rows = [line for line in lines if line.startswith(f"| `{option.name}` |")]
    default = "" if option.default is None else f"`{option.default}`"
    assert default in [row.split(" | ")[1].strip() for row in rows]
