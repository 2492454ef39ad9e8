"""Pages of HTML as tests read them."""

from html.parser import HTMLParser

VOID = {"meta", "br", "link", "input"}  # elements that are never closed


class Page(HTMLParser):
    """The elements and the visible text of a page; fails on unbalanced tags."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.words = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.words.append(data)

    @property
    def tags(self):
        return [tag for tag, _ in self.elements]

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())
