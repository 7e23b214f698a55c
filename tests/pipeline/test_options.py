"""What a user of Spark may say, and what is answered where it is not allowed."""

import json

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from disqued.pipeline.connector.mover import QueueMover
from disqued.pipeline.connector.options import OPTIONS, ConnectorUse, Option, names_of, read_options
from disqued.pipeline.connector.rows import SCHEMA
from disqued.pipeline.connector.source import DisquedDataSource
from disqued.pipeline.connector.store_rows import SCHEMAS
from tests.integration.daemon import ROOT

NODE = {"address": "127.0.0.1:7711"}


def test_every_option_has_its_default() -> None:
    options = read_options(NODE, ConnectorUse.READ)
    assert options["address"] == ("127.0.0.1:7711",)
    assert (options["queues"], options["states"], options["pipeline"]) == (("*",), ("queued", "active"), 1000)


def test_names_are_known_in_whatever_case_and_lists_have_commas() -> None:
    given = {"ADDRESS": "a:1, b", "minpartitions": "3", "Queues": "mail,orders-*"}
    options = read_options(given, ConnectorUse.READ)
    assert (options["address"], options["minPartitions"]) == (("a:1", "b"), 3)
    assert options["queues"] == ("mail", "orders-*")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "the option address is missing; allowed: host:port of a node"),
        ({"address": ""}, "the option address: a name is empty; allowed: host:port"),
        ({"address": "here:http"}, "the option address: 'here:http' is no address of a node"),
        (
            NODE | {"queus": "q"},
            "disqued has no option 'queus'; did you mean queues? options for spark.read are address, user",
        ),
        (
            NODE | {"ttl": "5"},
            "the option ttl is for df.write or df.writeStream or a move from queue to queue, not for spark.read;",
        ),
        (NODE | {"pipeline": "0"}, "the option pipeline cannot be '0'; allowed: 1 to 100000 commands"),
        (NODE | {"pipeline": "many"}, "the option pipeline cannot be 'many'; allowed: 1 to 100000"),
        (NODE | {"states": "acked"}, "the option states cannot be 'acked'; allowed: one or several of queued, active"),
        (NODE | {"queues": "a,,b"}, "the option queues cannot be 'a,,b': a name is empty; allowed: names or patterns"),
    ],
)
def test_what_is_not_allowed_is_refused_and_told(given: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match="option") as refused:
        read_options(given, ConnectorUse.READ)
    assert str(refused.value).startswith(said)


#: What has to stand in the options of a use.
NEEDED: dict[ConnectorUse, dict[str, str]] = {
    ConnectorUse.READ: NODE,
    ConnectorUse.STORE: {"path": "/srv/data"},
    ConnectorUse.STREAM: NODE | {"queues": "q"},
    ConnectorUse.GROUP: NODE | {"queues": "q", "group": "g"},
    ConnectorUse.EVENTS: {"events": "/srv/events"},
    ConnectorUse.WRITE: NODE,
    ConnectorUse.WRITE_STREAM: NODE,
    ConnectorUse.MOVE: NODE,
}
#: A value that is wrong for each option that does not take any text.
WRONG = {
    "address": "here:http", "queues": "a,,b", "path": ",", "states": "acked", "store": "x", "records": "x", "group": "",
    "events": "", "startingPosition": "x", "failOnDataLoss": "x", "twoPhase": "x",
}  # fmt: skip
RIGHT = {"states": "active", "store": "aof", "records": "done", "failOnDataLoss": "true", "twoPhase": "true"}
ANY_TEXT = ("user", "password", "queue")


def call(use: ConnectorUse, given: dict[str, str]) -> None:
    """Do what Spark, or `disqued-spark`, does for a use, in its order."""
    if use is ConnectorUse.MOVE:
        QueueMover(given, "q")
        return
    source = DisquedDataSource(given)
    rows = StructType([StructField("body", BinaryType())])
    if use is ConnectorUse.WRITE:
        source.writer(rows, False)
    elif use is ConnectorUse.WRITE_STREAM:
        source.streamWriter(rows, False)
    elif use in (ConnectorUse.READ, ConnectorUse.STORE):
        source.reader(source.schema())
    else:
        source.streamReader(source.schema())


def refusal(use: ConnectorUse, given: dict[str, str]) -> str:
    with pytest.raises(ValueError, match="option") as refused:
        call(use, given)
    return str(refused.value)


def test_columns_are_those_of_the_records_that_are_read() -> None:
    done = DisquedDataSource({"path": "/srv/data", "records": "DONE"}).schema()
    assert done == SCHEMAS["done"] != DisquedDataSource({"path": "/srv/data"}).schema()


def list_of(use: ConnectorUse) -> str:
    return f"options for {use.value} are {', '.join(names_of(use))}"


@pytest.mark.parametrize("use", ConnectorUse)
@pytest.mark.parametrize("name", dict.fromkeys(option.name for option in OPTIONS))
def test_an_option_of_another_use_is_refused_with_the_options_of_this_one(use: ConnectorUse, name: str) -> None:
    chooses = {
        "path": (ConnectorUse.READ, ConnectorUse.STORE),
        "group": (ConnectorUse.STREAM, ConnectorUse.GROUP),
        "events": (ConnectorUse.STREAM, ConnectorUse.EVENTS),
    }
    if name in names_of(use) or use in chooses.get(name, ()):
        return
    said = refusal(use, NEEDED[use] | {name: RIGHT.get(name, "1")})
    if (use, name) == (ConnectorUse.GROUP, "events"):
        use, name = ConnectorUse.EVENTS, "group"  # both choose a use, and the event log comes first
    assert said.startswith(f"the option {name} is for ")
    assert list_of(use) in said
    homes, _, here = said.partition(";")[0].removeprefix(f"the option {name} is for ").partition(", not for ")
    assert use.value in here.split(" or ")
    assert homes.split(" or ") == [each.value for each in ConnectorUse if name in names_of(each)]


@pytest.mark.parametrize("use", ConnectorUse)
def test_an_unknown_option_is_answered_with_the_options_of_the_call(use: ConnectorUse) -> None:
    said = refusal(use, NEEDED[use] | {"nonsense": "1"})
    assert said.startswith("disqued has no option 'nonsense'; ")
    assert list_of(use) in said
    for name in names_of(use):
        if name.lower() not in NEEDED[use]:
            said = refusal(use, NEEDED[use] | {name[:-1] + "z": "1"})
            assert f"did you mean {name}" in said
            assert list_of(use) in said


@pytest.mark.parametrize("use", ConnectorUse)
def test_a_wrong_value_is_answered_with_what_its_use_allows(use: ConnectorUse) -> None:
    for option in OPTIONS:
        if use in option.uses and option.name not in ANY_TEXT:
            said = refusal(use, NEEDED[use] | {option.name: WRONG.get(option.name, "-1")})
            assert said.startswith(f"the option {option.name}")
            allowed = said.partition("; allowed: ")[2]
            assert allowed in [each.allowed for each in OPTIONS if each.name == option.name]
            if (
                use
                in (
                    ConnectorUse.STORE,
                    ConnectorUse.GROUP,
                    ConnectorUse.EVENTS,
                    ConnectorUse.WRITE,
                    ConnectorUse.WRITE_STREAM,
                )
                and option.name != "queues"
            ):
                assert allowed == option.allowed


@pytest.mark.parametrize("use", ConnectorUse)
def test_a_needed_option_that_is_missing_is_named(use: ConnectorUse) -> None:
    for option in OPTIONS:
        if use in option.uses and option.is_needed and option.name not in ("path", "group", "events"):
            given = {name: text for name, text in NEEDED[use].items() if name != option.name}
            assert refusal(use, given) == f"the option {option.name} is missing; allowed: {option.allowed}"


def test_what_both_calls_allow_is_left_to_the_one_that_spark_names() -> None:
    assert DisquedDataSource(NODE | {"maxJobsPerTrigger": "5"}).schema() == SCHEMA, "queues may follow"
    said = refusal(ConnectorUse.STREAM, NODE | {"queues": "q", "states": "queued"})
    assert said.startswith("the option states is for spark.read or spark.read with path, not for spark.readStream; ")
    said = refusal(ConnectorUse.STREAM, NODE | {"queues": "mail-*"})
    assert said.startswith("the option queues cannot be 'mail-*': 'mail-*' is a pattern, and a stream needs the names")
    assert refusal(ConnectorUse.STREAM, NODE | {"queus": "q"}).startswith(
        "disqued has no option 'queus'; did you mean queues? "
    )


@pytest.mark.parametrize("use", [ConnectorUse.READ, ConnectorUse.STORE, ConnectorUse.STREAM, ConnectorUse.GROUP])
def test_names_with_commas_and_blanks_stand_in_a_json_array(use: ConnectorUse) -> None:
    names = ("a,b", " c ", 'with "quotes"', "\u00e4", "[")
    wanted = tuple(name for name in names if name != "[" or use in (ConnectorUse.READ, ConnectorUse.STORE))
    assert read_options(NEEDED[use] | {"queues": json.dumps(wanted)}, use)["queues"] == wanted


def test_other_lists_of_names_are_json_arrays_too() -> None:
    assert read_options({"path": ' ["/srv/a,b", "/srv/c*"]'}, ConnectorUse.STORE)["path"] == ("/srv/a,b", "/srv/c*")
    password = "disqued://:a,b@one:1"
    assert read_options({"address": json.dumps([password, "two:2"])}, ConnectorUse.READ)["address"] == (
        password,
        "two:2",
    )
    assert read_options(NODE | {"states": '["active"]'}, ConnectorUse.READ)["states"] == ("active",)


def test_a_pattern_may_begin_with_a_bracket() -> None:
    assert read_options(NODE | {"queues": "[ab]*, [1]"}, ConnectorUse.READ)["queues"] == ("[ab]*", "[1]")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[]", "a JSON array needs one string or more, none of them empty"),
        ('["a", ""]', "a JSON array needs one string or more, none of them empty"),
        ('["a", 5]', "a JSON array needs one string or more, none of them empty"),
        ('["a", ["b"]]', "a JSON array needs one string or more, none of them empty"),
        ('["a"', "this begins like a JSON array of strings and is none"),
        ('["a"], b', "this begins like a JSON array of strings and is none"),
        ('["a",' + "[" * 100_000, "this begins like a JSON array of strings and is none"),
        ("['a', 'b']", "this is a Python list; write it with json.dumps"),
        ("('a', 'b')", "this is a Python list; write it with json.dumps"),
    ],
    ids=range(9),
)
def test_what_is_no_list_of_names_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match="option") as refused:
        read_options(NODE | {"queues": text}, ConnectorUse.READ)
    assert str(refused.value).startswith("the option queues cannot be ")
    assert f": {why}; allowed: names or patterns" in str(refused.value)


def test_spans_have_fractions_to_the_millisecond() -> None:
    given = {"retry": "0.25", "ttl": "4.998765432101234", "delay": ".5", "prepareTimeout": "1e1", "queue": "q"}
    options = read_options(NODE | given | {"twoPhase": "false", "replicationTimeout": "2.0"}, ConnectorUse.WRITE)
    names = ("retry", "ttl", "delay", "prepareTimeout", "replicationTimeout")
    assert [options[name] for name in names] == [0.25, 4.999, 0.5, 10, 2]
    assert [type(options[name]) for name in names] == [float, float, float, int, int]
    for name, text in (("retry", "-0.5"), ("ttl", "0"), ("delay", "nan"), ("ttl", ""), ("retry", "2147483647.5")):
        with pytest.raises(ValueError, match=f"the option {name} cannot be"):
            read_options(NODE | {"queue": "q", name: text}, ConnectorUse.WRITE)


def test_a_password_is_in_no_error() -> None:
    with pytest.raises(ValueError, match="option address") as refused:
        read_options({"address": "disqued://:hush@here:http"}, ConnectorUse.READ)
    assert "hush" not in str(refused.value)


def test_what_spark_passes_on_is_no_error() -> None:
    assert read_options(NODE | {"checkpointlocation": "/tmp/x"}, ConnectorUse.WRITE)["twoPhase"] is True


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_the_page_tells_every_option_with_its_default(option: Option) -> None:
    sections = (ROOT / "docs/reference/spark.md").read_text().split("\n## ")
    lines = [line for section in sections if section.startswith("Options") for line in section.splitlines()]
    rows = [line for line in lines if line.startswith(f"| `{option.name}` |")]
    default = "" if option.default is None else f"`{option.default}`"
    assert default in [row.split(" | ")[1].strip() for row in rows]
