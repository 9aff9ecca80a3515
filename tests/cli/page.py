# SPDX-License-Identifier: Apache-2.0
"""report.html as tests see it."""

import html.parser

PLOTS = {"plot-loss", "plot-throughput", "plot-ranks", "plot-rank-bars",
         "plot-overlap", "plot-bytes"}


class Page(html.parser.HTMLParser):
    """A page: every element is closed, and what is in it."""

    EMPTY = {"meta", "br", "link"}

    def __init__(self, text):
        super().__init__()
        self.open = []
        self.ids = set()
        self.elements = []  # (tag, attributes)
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        name = dict(attrs).get("id")
        assert name not in self.ids, name
        if name:
            self.ids.add(name)
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag

    def handle_data(self, data):
        if not self.open or self.open[-1] != "style":
            self.text += data + " "

    def all(self, tag, style):
        return [a for t, a in self.elements
                if t == tag and style in a.get("class", "").split()]
