"""An OpenAPI 3.0 document: its own shape, and whether an answer is one that it describes. For openapi_check.py."""

import json
import re

import jsonschema


class Wrong(Exception):
    """A sentence about something that is not as it should be."""


class Operation:
    def __init__(self, path, method, words, responses):
        self.path, self.method, self.words, self.responses = path, method.upper(), words, responses
        self.name = words["operationId"]
        self.scope = words.get("x-scope")
        self.is_open = words.get("security") == []
        self.reached = set()  # statuses

    def request_schema(self):
        body = self.words.get("requestBody")
        return body and body["content"]["application/json"]["schema"]


class Document:
    METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")

    def __init__(self, text):
        self.raw = json.loads(text)
        self.used = set()
        self.elsewhere = {int(status): self.whole(words) for status, words in self.raw["x-elsewhere"].items()}
        self.operations = {}
        self.doubles = []
        for path, item in self.raw["paths"].items():
            for method in item:
                words = self.whole(item[method])
                if words.get("operationId") in self.operations:
                    self.doubles.append(words["operationId"])
                responses = {int(status): answer for status, answer in words["responses"].items()}
                self.operations[words["operationId"]] = Operation(path, method, words, responses)

    def whole(self, node, inside=()):
        """The node with what its references lead to in their place, and `nullable` as JSON Schema says it."""
        if isinstance(node, list):
            return [self.whole(each, inside) for each in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            target = node["$ref"]
            if target in inside:
                raise Wrong(f"{target} leads to itself.")
            self.used.add(target)
            return self.whole(self.find(target), (*inside, target))
        out = {name: self.whole(value, inside) for name, value in node.items()}
        if out.get("nullable") is True and isinstance(out.get("type"), str):
            out["type"] = [out["type"], "null"]
        return out

    def find(self, reference):
        node = self.raw
        for name in reference.removeprefix("#/").split("/"):
            if name not in node:
                raise Wrong(f"{reference} leads nowhere.")
            node = node[name]
        return node

    def methods_of(self, path):
        return {each.method for each in self.operations.values() if each.path == path}

    def faults(self):
        """Sentences about the document itself."""
        if not re.fullmatch(r"3\.0\.\d+", self.raw["openapi"]):
            yield f"The version is {self.raw['openapi']}, not 3.0."
        for name in self.doubles:
            yield f"Two operations are called {name}."
        for kind, all_of_it in self.raw["components"].items():
            for name in all_of_it:
                reference = f"#/components/{kind}/{name}"
                if kind != "securitySchemes" and reference not in self.used:
                    yield f"Nothing leads to {reference}."
        for name, schema in self.raw["components"]["schemas"].items():
            try:
                jsonschema.Draft4Validator.check_schema(self.whole(schema))
            except jsonschema.SchemaError as failure:
                yield f"The schema {name} is none: {failure.message}."
        for path, item in self.raw["paths"].items():
            for method in item:
                if method not in self.METHODS:
                    yield f"{path} has {method}, which is no method."
        for each in self.operations.values():
            yield from self.faults_of(each)

    def faults_of(self, operation):
        if not any(200 <= status < 300 for status in operation.responses):
            yield f"{operation.name} has no answer that says it worked."
        for status, answer in operation.responses.items():
            if not answer.get("description"):
                yield f"{operation.name}: {status} has no description."
        in_path = set(re.findall(r"{(\w+)}", operation.path))
        said = {each["name"] for each in operation.words.get("parameters", []) if each["in"] == "path"}
        if in_path != said:
            yield f"{operation.name}: the path has {sorted(in_path)}, and the parameters {sorted(said)}."
        schema = operation.request_schema()
        if schema and "sessions" not in operation.words["tags"] and schema.get("additionalProperties") is not False:
            yield f"{operation.name}: its body may have any field."

    @staticmethod
    def judge(what, schema, value):
        failure = jsonschema.exceptions.best_match(jsonschema.Draft4Validator(schema).iter_errors(value))
        if failure:
            where = "/".join(str(each) for each in failure.absolute_path)
            raise Wrong(f"{what} is not as described, at '{where}': {failure.message}.")

    def judge_answer(self, what, described, answer):
        """`described` is a response object of the document."""
        content = described.get("content")
        if not content:
            if answer.text:
                raise Wrong(f"{what} has a body, and none is described.")
            return
        kind = answer.kind
        if kind not in content:
            raise Wrong(f"{what} is {kind}, and not {' or '.join(content)}.")
        schema = content[kind]["schema"]
        if kind == "text/event-stream":
            return
        self.judge(what, schema, answer.json if kind.endswith("json") else answer.text)
        for name, header in described.get("headers", {}).items():
            value = answer.headers.get(name)
            if value is None:
                raise Wrong(f"{what} has no header {name}.")
            self.judge(f"{name} of {what}", header["schema"], self.of_type(value, header["schema"]))

    @staticmethod
    def of_type(text, schema):
        return int(text) if schema.get("type") == "integer" and text.isdigit() else text
