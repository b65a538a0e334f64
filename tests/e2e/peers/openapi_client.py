"""Requests to `holdfast serve`, each judged by the document that it serves. For openapi_check.py."""

import http.client
import json
import re
import socket
import threading
import urllib.parse

from openapi_document import Wrong

PATIENCE = 60  # seconds: whatever takes longer has failed
KNOWN = object()  # the key that the client was made with


class Answer:
    def __init__(self, status, headers, text):
        self.status, self.headers, self.text = status, headers, text
        self.kind = (headers.get("Content-Type") or "").split(";")[0].strip()

    @property
    def json(self):
        try:
            return json.loads(self.text)
        except ValueError:
            raise Wrong(f"This is no JSON: {self.text[:200]}") from None


class Client:
    def __init__(self, address, document, key=None):
        self.host, self.port = address.hostname, address.port
        self.document, self.key = document, key

    def send(self, method, target, body=None, headers=(), key=KNOWN):
        """The connection, with the answer's head to come."""
        shown = self.key if key is KNOWN else key
        wanted = {"Authorization": f"Bearer {shown}"} if shown else {}
        wanted.update(headers)
        to = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)
        to.request(method, target, body=body, headers=wanted)
        return to

    def ask(self, method, target, **how):
        to = self.send(method, target, **how)
        try:
            got = to.getresponse()
            return Answer(got.status, got.headers, got.read().decode())
        finally:
            to.close()

    def target(self, operation, at, query):
        path = operation.path
        for name, value in at.items():
            path = path.replace("{" + name + "}", urllib.parse.quote(value, safe="/"))
        if "{" in path:
            raise Wrong(f"{operation.name} was asked without a value for {path}.")
        return path + ("?" + urllib.parse.urlencode(query) if query else "")

    def prepared(self, operation, body, headers, raw):
        headers = dict(headers or {})
        if operation.name == "break_lock":
            headers.setdefault("X-Holdfast-Intent", "break")
        if body is None:
            return raw, headers
        headers.setdefault("Content-Type", "application/json")
        return json.dumps(body).encode(), headers

    def call(self, name, want=200, code=None, at=None, query=None, body=None, raw=None, headers=None, key=KNOWN):
        """One request, which must be answered with the status `want`, as described."""
        operation = self.document.operations[name]
        if want < 400 and body is not None:
            self.document.judge(f"The body of a request to {name}", operation.request_schema(), body)
        data, headers = self.prepared(operation, body, headers, raw)
        target = self.target(operation, at or {}, query)
        answer = self.ask(operation.method, target, body=data, headers=headers, key=key)
        self.judge(operation, answer, want, code)
        return answer

    def judge(self, operation, answer, want, code=None):
        what = f"The answer {answer.status} of {operation.name}"
        if answer.status != want:
            raise Wrong(f"{what} was to be {want}: {answer.text[:300]}")
        if answer.status not in operation.responses:
            raise Wrong(f"{what} is not described.")
        self.document.judge_answer(what, operation.responses[answer.status], answer)
        operation.reached.add(answer.status)
        if code and answer.kind == "application/problem+json" and answer.json["code"] != code:
            raise Wrong(f"{what} was to have the code {code}, and has {answer.json['code']}.")
        if code and answer.kind == "text/plain" and not answer.text.startswith(code + ":"):
            raise Wrong(f"{what} was to begin with {code}, and is {answer.text[:100]}")

    def in_background(self, name, **how):
        return Background(self, name, how)

    def stream(self, name, at=None, query=None, body=None):
        operation = self.document.operations[name]
        data, headers = self.prepared(operation, body, None, None)
        to = self.send(operation.method, self.target(operation, at or {}, query), data, headers)
        return Stream(self, operation, to)

    def half_request(self):
        """A request of which the rest never comes; answer() waits for what is said about it."""
        return HalfRequest(self)


class Background:
    """A call that is made while others are."""

    def __init__(self, client, name, how):
        self.outcome = self.failure = None

        def make():
            try:
                self.outcome = client.call(name, **how)
            except Exception as failure:  # told by answer()
                self.failure = failure

        self.thread = threading.Thread(target=make, daemon=True)
        self.thread.start()

    def answer(self):
        self.thread.join(PATIENCE)
        if self.thread.is_alive():
            raise Wrong("A request was not answered in a minute.")
        if self.failure:
            raise self.failure
        return self.outcome


class Stream:
    """Server-sent events; each is judged when it is read."""

    def __init__(self, client, operation, connection):
        self.document, self.operation, self.connection = client.document, operation, connection
        self.got = connection.getresponse()
        answer = Answer(self.got.status, self.got.headers, "" if self.got.status == 200 else self.got.read().decode())
        client.judge(operation, answer, 200)
        self.described = operation.responses[200]["content"]["text/event-stream"]["x-events"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        # The response has the socket, too, until it is closed.
        self.got.close()
        self.connection.close()

    def next(self):
        """(event, data), or nothing at the end of the stream."""
        event = data = None
        for line in iter(self.got.readline, b""):
            text = line.decode().rstrip("\n")
            if text.startswith("event: "):
                event = text[7:]
            elif text.startswith("data: "):
                data = json.loads(text[6:])
            elif text == "" and event is not None:
                if event not in self.described:
                    raise Wrong(f"{self.operation.name} tells {event}, which is not described.")
                self.document.judge(f"The event {event} of {self.operation.name}", self.described[event], data)
                return event, data
        return None

    def until(self, wanted, about=None):
        """The data of the first such event, of this lock if one is named."""
        while (one := self.next()) is not None:
            event, data = one
            if event == wanted and (about is None or data.get("name") == about):
                return data
        raise Wrong(f"{self.operation.name} ended without the event {wanted}.")


class HalfRequest:
    HEAD = "POST /v1/locks:acquire HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 20\r\n"

    def __init__(self, client):
        self.client = client
        self.socket = socket.create_connection((client.host, client.port), timeout=PATIENCE)
        self.socket.sendall((self.HEAD + "\r\n{").encode())

    def answer(self):
        got = http.client.HTTPResponse(self.socket)
        got.begin()
        answer = Answer(got.status, got.headers, got.read().decode())
        got.close()
        self.socket.close()
        return answer


def paths_in(sources):
    """Path patterns that routes are made of: texts in those files of the folder that add some."""
    out = set()
    for file in sources.glob("*.cpp"):
        text = file.read_text()
        if "scope::" in text and ".add(" in text:
            out.update(re.findall(r'"(/(?:v1/)?[a-z0-9_./{}:]*)"', text))
    return out
