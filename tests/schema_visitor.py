"""A browser as far as the form for a schema needs one, which can also lack what browsers have."""

import http.client
import re
from urllib.parse import urlencode, urlsplit

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


class Visitor:
    """Somebody who knows the address of `privsketch schema edit`."""

    def __init__(self, address):
        self.host, self.path = urlsplit(address).netloc, urlsplit(address).path
        self.cookie = None

    def ask(self, method="GET", path=None, body=None, **headers):
        connection = http.client.HTTPConnection(self.host, timeout=10)
        given = {"Host": self.host}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookie is not None:
            given.setdefault("Cookie", self.cookie)
        connection.putrequest(method, path or self.path, skip_host=True)
        for name, value in given.items():
            if value is not None:
                connection.putheader(name, value)
        if body is not None and "Content-Length" not in given:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        answer.text = answer.read().decode()
        connection.close()
        return answer

    def enter(self):
        """Open the address, and return the page."""
        answer = self.ask()
        assert answer.status == 303
        self.path = answer.getheader("Location")
        self.set_cookie = answer.getheader("Set-Cookie")
        self.cookie = self.set_cookie.partition(";")[0]
        page = self.ask()
        assert page.status == 200
        self.token = re.search(r'name="form" value="([^"]+)"', page.text)[1]
        return page

    def save(self, *, texts, token=None, save="accept", headers=None):
        """Send the form with these texts."""
        texts = {"form": token or self.token, "save": save, **texts}
        given = {**FORM, "Origin": f"http://{self.host}", **(headers or {})}
        return self.ask("POST", body=urlencode(texts).encode(), **given)
