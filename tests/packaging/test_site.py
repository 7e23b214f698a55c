"""The documentation as a site: built as `make site` builds it, complete, and sufficient for itself.

That the build fails where it should is seen on small trees of pages, built with the settings of docs/conf.py.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.browser import browser

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
[SPHINX] = re.findall(r"^SPHINX := \$\(BIN\)/python (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
#: What a browser fetches without being asked.
FETCHED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "srcset", "object": "data"}
URL_IN_STYLE = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")
#: Hosts that stand for the reader's own.
LOCAL = {"127.0.0.1", "localhost"}
HEADING = "# One\n\n## Two\n"


def build(docs: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build a tree of pages with the settings of ours."""
    argv = [sys.executable, *SPHINX.split(), "-c", str(DOCS), "-E", "-d", f"{site}.doctrees", str(docs), str(site)]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built without a warning."""
    made = tmp_path_factory.mktemp("built") / "site"
    done = build(DOCS, made)
    assert (done.returncode, done.stderr) == (0, "")
    return made


def small(folder: Path, **pages: str) -> Path:
    """Write a tree of pages; its table of contents names `page` alone."""
    docs = folder / "docs"
    docs.mkdir()
    (docs / "index.md").write_text("# Index\n\n```{toctree}\npage\n```\n")
    for name, text in pages.items():
        (docs / f"{name}.md").write_text(text)
    (folder / "LICENSE").write_text("MIT\n")
    return docs


def test_every_page_is_on_the_site(site: Path) -> None:
    pages = {page.relative_to(DOCS).with_suffix(".html") for page in DOCS.rglob("*.md")}
    assert len(pages) > 40
    assert [page for page in sorted(pages) if not (site / page).is_file()] == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{HEADING}[gone](gone.md)\n", "gone.md"),
        (f"{HEADING}[gone](gone.yml)\n", "gone.yml"),
        (f"{HEADING}[gone](page.md#three)\n", "three"),
        (f"{HEADING}[gone](#three)\n", "three"),
        (f"{HEADING}[gone](../GONE)\n", "../GONE"),
        (f"{HEADING}[outside](../../../outside.md)\n", "../outside.md"),
        (f"{HEADING}![gone](gone.png)\n", "gone.png"),
    ],
    ids=["page", "file", "heading", "own-heading", "repository", "outside", "picture"],
)
def test_a_link_that_leads_nowhere_stops_the_build(tmp_path: Path, text: str, said: str) -> None:
    done = build(small(tmp_path, page=text), tmp_path / "site")
    assert done.returncode != 0
    assert said in done.stderr
    assert done.stderr.count("WARNING") == 1, done.stderr


def test_a_page_that_nothing_names_stops_the_build(tmp_path: Path) -> None:
    done = build(small(tmp_path, page=HEADING, lonely=HEADING), tmp_path / "site")
    assert done.returncode != 0
    assert "lonely.md: WARNING: document isn't included in any toctree" in done.stderr


def test_links_that_lead_somewhere_do_not(tmp_path: Path) -> None:
    text = f"{HEADING}[here](#two), [there](index.md), [the licence](../LICENSE), [elsewhere](https://example.org/a)\n"
    done = build(small(tmp_path, page=text), tmp_path / "site")
    assert (done.returncode, done.stderr) == (0, "")
    page = (tmp_path / "site/page.html").read_text()
    # The site may be read without the repository: the file comes with it.
    [copied] = re.findall(r'href="(_downloads/[^"]*/LICENSE)"', page)
    assert (tmp_path / "site" / copied).read_text() == "MIT\n"


class Fetches(HTMLParser):
    """Collects what a browser fetches with a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs).get(FETCHED.get(tag, ""))
        if found:
            self.found.append(found)


def fetches(page: Path) -> list[str]:
    """Name what a page or a style sheet has fetched."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".css":
        return [one or other for one, other in URL_IN_STYLE.findall(text)]
    parser = Fetches()
    parser.feed(text)
    return parser.found


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    """No font, script, style or picture: all that a page fetches is a file of the site."""
    wanted = [
        (page, url)
        for page in [*site.rglob("*.html"), *site.rglob("*.css")]
        for url in fetches(page)
        if not url.startswith("data:")
    ]
    assert len(wanted) > 100
    for page, url in wanted:
        parts = urlsplit(url)
        assert (parts.scheme, parts.netloc) == ("", ""), (page, url)
        assert (page.parent / unquote(parts.path)).exists() or url.startswith("#"), (page, url)


def test_what_would_be_loaded_from_elsewhere_is_noticed(tmp_path: Path) -> None:
    page, style = tmp_path / "page.html", tmp_path / "style.css"
    page.write_text('<script src="https://cdn.example.org/a.js"></script><link rel=x href="//fonts.example.org/b">')
    style.write_text("@import 'https://example.org/c.css'; a { background: url(https://example.org/d.png) }")
    assert [urlsplit(url).netloc for file in (page, style) for url in fetches(file)] == [
        "cdn.example.org", "fonts.example.org", "example.org", "example.org",
    ]  # fmt: skip


def test_search_works_from_the_files_alone(site: Path, tmp_path: Path) -> None:
    """As someone has it who unpacked the site on a machine without a network."""
    with browser(tmp_path / "profile") as opened:
        opened.driver.get(f"{(site / 'search.html').as_uri()}?q=acknowledged")
        opened.wait_text("#search-results", "Glossary")
        assert opened.complaints() == []


def external() -> Iterator[tuple[str, str]]:
    """Each link to another host: the page, and where it leads."""
    for page in [ROOT / "README.md", *DOCS.rglob("*.md")]:
        for url in re.findall(r"\]\(([a-z]+:[^)]*)\)|<(http[^>]*)>", page.read_text(encoding="utf-8")):
            yield page.name, url[0] or url[1]


def test_links_to_other_hosts_have_the_form_of_one() -> None:
    """They are not fetched here: a test depends on no other host."""
    found = list(external())
    assert found
    for page, url in found:
        parts = urlsplit(url)
        assert not re.search(r"\s", url), (page, url)
        assert parts.hostname, (page, url)
        if parts.hostname not in LOCAL:
            assert (parts.scheme, "." in parts.hostname, parts.username) == ("https", True, None), (page, url)
