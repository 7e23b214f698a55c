"""How the pages of docs/ become a site: `make site` writes it to build/site, and every warning is an error.

    docs/*.md --myst--> one tree --Sphinx, furo--> build/site

A link to a page, a file or a heading that is not there is a warning, as is a page that no table of contents names.
The site may be read without the repository, so a file that a page links to comes with it, from outside docs/ too.

Nothing is fetched, neither while the site is built nor while it is read.
"""

import re
from pathlib import Path

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[1]

project = "disqued"
author = "the disqued authors"
[version] = re.findall(r'^__version__ = "(.+)"$', (ROOT / "disqued/__init__.py").read_text(), re.MULTILINE)
release = version

extensions = ["myst_parser"]
#: As GitHub makes them, so that a link to a heading works in both places.
myst_heading_anchors = 4
nitpicky = True

html_theme = "furo"
html_title = f"disqued {release}"
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
#: A browser lets no page that is a file fetch others, from which summaries would be made.
html_show_search_summary = False
#: Sessions and settings are no Python; a block that is says so.
highlight_language = "text"


def setup(app: Sphinx) -> None:
    """Name the languages of blocks that Pygments does not know."""
    for language in ("csv", "nft"):
        app.add_lexer(language, TextLexer)
