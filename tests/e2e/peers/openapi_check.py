"""Does `holdfast serve` answer as the document says that it serves? Every operation is asked, in as many ways as can be
brought about, and each answer is held against the document.

    openapi_check.py BASE_URL [--key KEY [--narrow-key KEY]] [--sources FOLDER] [--leases N] [--pid PID]

--key         may do everything with all names; needed where the service has keys
--narrow-key  may only acquire, and only names that begin with narrow/
--sources     the folder server/: no route there is missing in the document
--leases      the service was told leases-per-key = N: one more than that is refused, at the end
--pid         of the service, which is told to stop at the end, while a request waits

Prints a line for each operation with the statuses that were reached, then a sentence for each fault, and exits with 1 if
there is one. An operation that was never asked is a fault. Needs python3-jsonschema.
"""

import argparse
import os
import pathlib
import signal
import subprocess
import sys
import time
import urllib.parse
import uuid

sys.dont_write_bytecode = True

from openapi_client import PATIENCE, Client, Wrong, paths_in  # noqa: E402
from openapi_document import Document  # noqa: E402

TTL = "60s"  # of what must not end by itself, whatever else this machine does
NO_LEASE = "0" * 32
READY_CAPACITY = 1 << 30  # rw_capacity of include/holdfast/engine.hpp


def name_of(what):
    return f"openapi/{uuid.uuid4().hex[:8]}/{what}"


def until(condition, what):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise Wrong(f"In a minute it did not come that {what}.")
        time.sleep(0.02)


def acquired(s, name, operation="acquire_lock", **body):
    return s.call(operation, at={"name": name}, body={"ttl": TTL, **body}).json


def wait_for_waiter(s, name):
    until(lambda: s.call("show_lock", at={"name": name}).json["waiters"], "somebody waits for the lock")


def lost_lease(s):
    name = name_of("lost")
    lease = acquired(s, name, label="loses it")["lease"]
    s.call("break_lock", at={"name": name})
    until(lambda: s.document.operations["show_lease"] and gone(s, lease), "the service knows of the loss")
    return lease


def gone(s, lease):
    return s.ask("GET", f"/v1/leases/{lease}").status == 410


# ---- scenarios: each is a function, and its name is told when it fails


def a_lock_is_taken_and_given_back(s):
    at = {"name": name_of("lock")}
    ask = {"ttl": TTL, "wait": "100ms", "order": "barging", "priority": 0, "label": "check", "request_id": name_of("a")}
    lease = s.call("acquire_lock", at=at, body=ask).json
    again = s.call("acquire_lock", at=at, body=ask).json
    if (again["lease"], again["token"]) != (lease["lease"], lease["token"]):
        raise Wrong("The same request_id gave another grant.")
    s.call("acquire_lock", 409, "conflict", at=at, body={**ask, "label": "another"})
    busy = s.call("acquire_lock", 409, "busy", at=at).json
    if [each["label"] for each in busy["holders"]] != ["check"]:
        raise Wrong(f"The answer busy names as holders {busy['holders']}.")
    s.call("acquire_lock", 408, "timed_out", at=at, body={"wait": 0.05})
    this = {"lease": lease["lease"]}
    view = s.call("show_lease", at=this).json
    if (view["name"], view["label"], view["token"]) != (at["name"], "check", lease["token"]):
        raise Wrong(f"The lease is shown as {view}.")
    s.call("renew_lease", at=this)
    if s.call("renew_lease", at=this, body={"ttl": "30s"}).json["ttl_ms"] != 30_000:
        raise Wrong("A renewal with another ttl has another.")
    s.call("renew_lease", 400, at=this, body={"ttl": "2h"})
    s.call("release_lease", 204, at=this)
    s.call("release_lease", 204, at=this)
    for name in ("show_lease", "renew_lease", "downgrade_lease", "upgrade_lease"):
        s.call(name, 404, "not_held", at=this)
    s.call("release_lease", 404, "not_held", at={"lease": NO_LEASE})


def what_was_lost_is_gone(s):
    this = {"lease": lost_lease(s)}
    for name in ("show_lease", "renew_lease", "downgrade_lease", "upgrade_lease", "release_lease"):
        s.call(name, 410, "lost", at=this)
    s.call("plain_unlock", 410, "lost", query=this)


def modes_change(s):
    name = name_of("modes")
    at = {"lease": acquired(s, name)["lease"]}
    if s.call("downgrade_lease", at=at, body={"mode": "upgradeable"}).json["mode"] != "upgradeable":
        raise Wrong("A downgraded lease has the mode that it had.")
    reader = acquired(s, name, mode="shared")
    s.call("upgrade_lease", 409, "busy", at=at)
    s.call("upgrade_lease", 408, "timed_out", at=at, body={"wait": "50ms"})
    s.call("release_lease", 204, at={"lease": reader["lease"]})
    s.call("upgrade_lease", at=at, body={"wait": TTL})
    s.call("downgrade_lease", at=at)
    s.call("downgrade_lease", 400, at=at, body={"mode": "exclusive"})
    s.call("upgrade_lease", 400, at=at)
    s.call("release_lease", 204, at=at)


def several_are_taken_at_once(s):
    names = [name_of("a"), name_of("b")]
    got = s.call("acquire_locks", body={"names": names, "ttl": TTL, "request_id": name_of("all")}).json["leases"]
    if sorted(each["name"] for each in got) != sorted(names):
        raise Wrong(f"For {names} there are leases of {got}.")
    s.call("acquire_locks", 409, "busy", body={"names": [names[1], name_of("c")]})
    s.call("acquire_locks", 408, "timed_out", body={"names": [names[1], name_of("c")], "wait": "50ms"})
    s.call("acquire_locks", 400, body={"names": []})
    s.call("acquire_locks", 400, body={"names": ["a//b"]})


def a_lock_lives_as_long_as_its_connection(s):
    at = {"name": name_of("held")}
    with s.stream("hold_lock", at=at, body={"ttl": "3s", "label": "connected"}) as first:
        first.until("granted")
        first.until("renewed")
        s.call("hold_lock", 409, "busy", at=at)
        with s.stream("hold_lock", at=at, body={"wait": "50ms"}) as impatient:
            impatient.until("waiting")
            if impatient.until("failed")["code"] != "timed_out":
                raise Wrong("A hold that waits in vain fails otherwise.")
        with s.stream("hold_lock", at=at, body={"ttl": "3s", "wait": "forever"}) as second:
            second.until("waiting")
            first.close()
            second.until("granted")
            s.call("break_lock", at=at)
            second.until("lost")
            if second.next() is not None:
                raise Wrong("After lost there is another event.")
    s.call("hold_lock", 400, at=at, body={"request_id": "a"})


def a_lock_lives_as_long_as_a_process(s):
    at = {"name": name_of("process")}
    with subprocess.Popen(["sleep", "600"]) as holder, subprocess.Popen(["sleep", "600"]) as waiter:
        try:
            acquired(s, at["name"], pid=holder.pid)
            waits = s.in_background(
                "acquire_lock", want=410, code="cancelled", at=at, body={"pid": waiter.pid, "wait": "10m"}
            )
            wait_for_waiter(s, at["name"])
            waiter.kill()
            waits.answer()
            holder.kill()
            s.call("acquire_lock", at=at, body={"wait": TTL})
        finally:
            holder.kill()
            waiter.kill()
    s.call("acquire_lock", 400, at=at, body={"pid": holder.pid})  # there is none any more


def permits_are_counted(s):
    at = {"name": name_of("permits")}
    s.call("acquire_permits", at=at, body={"permits": 2, "of": 3, "ttl": TTL, "label": "two of them"})
    two = {"permits": 2, "of": 3}
    s.call("acquire_permits", 409, "busy", at=at, body=two)
    s.call("acquire_permits", 408, "timed_out", at=at, body={**two, "wait": "50ms"})
    s.call("acquire_permits", 400, at=at, body={"permits": 1})
    s.call("acquire_lock", 400, at=at, body={"mode": "shared", "of": 3})
    if s.call("acquire_lock", at=at, body={"of": 3, "ttl": TTL}).json["permits"] != 1:
        raise Wrong("A lock with `of` gave other permits than one.")
    shown = s.call("show_lock", at=at).json
    if (shown["permits"], len(shown["holders"])) != (3, 2):
        raise Wrong(f"A semaphore is shown as {shown}.")


def latches_open(s):
    at = {"name": name_of("latch")}
    s.call("show_latch", 404, "not_held", at=at)
    s.call("count_latch_down", 404, "not_held", at=at)
    s.call("create_latch", at=at, body={"count": 2, "keep": "1h"})
    if s.call("create_latch", at=at, body={"count": 7}).json["left"] != 2:
        raise Wrong("A latch that exists was created again.")
    s.call("wait_for_latch", 408, "timed_out", at=at, body={"wait": "50ms"})
    waits = s.in_background("wait_for_latch", at=at, body={"wait": "10m"})
    s.call("count_latch_down", at=at)
    s.call("count_latch_down", at=at, body={"by": 1})
    waits.answer()
    if s.call("show_latch", at=at).json != {"name": at["name"], "left": 0, "open": True}:
        raise Wrong("An open latch is not shown as one.")
    s.call("set_latch", at=at, body={"count": 1})
    prefix = at["name"].rsplit("/", 1)[0]
    if [each["left"] for each in s.call("list_latches", query={"prefix": prefix}).json["latches"]] != [1]:
        raise Wrong("The latches of this check are not the one that was made.")
    s.call("remove_latch", 204, at=at)
    s.call("remove_latch", 204, at=at)
    for name in ("create_latch", "set_latch"):
        s.call(name, 400, at=at, body={})
    s.call("wait_for_latch", 400, at=at, body={"wait": "2h"})


def leaders_are_elected(s):
    at = {"name": name_of("seat")}
    if s.call("show_leader", at=at).json != {"leader": None}:
        raise Wrong("A seat that nobody has ever had has a leader.")
    term = acquired(s, at["name"], "campaign", value="here")["token"]
    leader = s.call("show_leader", at=at).json["leader"]
    if (leader["value"], leader["term"]) != ("here", term):
        raise Wrong(f"The leader is shown as {leader}.")
    s.call("campaign", 409, "busy", at=at)
    s.call("campaign", 408, "timed_out", at=at, body={"wait": "50ms"})
    s.call("campaign", 400, at=at, body={"label": "it is called value here"})
    s.call("show_leader", at=at, query={"seen": 0, "wait": "10m"})
    s.call("show_leader", 408, "timed_out", at=at, query={"seen": term, "wait": "50ms"})
    s.call("show_leader", 400, at=at, query={"seen": "x"})


def shells_get_text(s):
    name = name_of("plain")
    lease, _ = s.call("plain_lock", query={"name": name, "ttl": TTL, "label": "shell"}).text.split()
    s.call("plain_lock", 409, "busy", query={"name": name})
    s.call("plain_lock", 408, "timed_out", query={"name": name, "wait": "50ms"})
    s.call("plain_lock", 400, "bad_request")
    s.call("plain_lock", 400, "bad_request", query={"name": name, "tll": "10s"})
    s.call("plain_lock", 400, "misconfigured", query={"name": "a//b"})
    s.call("plain_lock", 415, "bad_request", query={"name": name}, raw=b"name=x")
    s.call("plain_unlock", query={"lease": lease})
    s.call("plain_unlock", query={"lease": lease})
    s.call("plain_unlock", 404, "not_held", query={"lease": NO_LEASE})
    s.call("plain_unlock", 400, "bad_request")


def operators_see_and_break(s):
    name = name_of("seen")
    prefix = name.rsplit("/", 1)[0]
    with s.stream("watch_events", query={"prefix": prefix}) as events:
        events.until("hello")
        acquired(s, name, label="<b>first</b>")
        events.until("granted", name)
        waits = s.in_background("acquire_lock", at={"name": name}, body={"ttl": TTL, "wait": "10m", "label": "next"})
        events.until("queued", name)
        wait_for_waiter(s, name)
        listed = s.call("list_locks", query={"prefix": prefix, "limit": 10}).json["locks"]
        if [each["name"] for each in listed] != [name]:
            raise Wrong(f"The locks with this prefix are {listed}.")
        graph = s.call("show_waits", query={"prefix": prefix}).json
        if [each["name"] for each in graph["waits"]] != [name]:
            raise Wrong(f"Who waits for whom is {graph}.")
        s.call("break_lock", at={"name": name})
        events.until("broken", name)
        waits.answer()
        events.until("granted", name)
    history = s.call("show_lock", at={"name": name}).json["history"]
    if not {"granted", "queued", "broken"} <= {each["event"] for each in history}:
        raise Wrong(f"The history of a lock that was broken is {history}.")
    s.call("break_lock", 403, "denied", at={"name": name}, headers={"X-Holdfast-Intent": "look"})
    s.call("list_locks", 400, query={"limit": 0})
    s.call("watch_events", 400, query={"since": 1})


def circles_are_found(s):
    names = [name_of("left"), name_of("right")]
    leases = [acquired(s, name, label=f"actor {i}")["lease"] for i, name in enumerate(names)]
    waits = [
        s.in_background("acquire_lock", at={"name": name}, body={"ttl": TTL, "wait": "10m", "label": f"actor {1 - i}"})
        for i, name in enumerate(names)
    ]
    until(lambda: s.call("show_waits", query={"prefix": "openapi/"}).json["cycles"], "the circle is seen")
    for lease in leases:
        s.call("release_lease", 204, at={"lease": lease})
    for each in waits:
        each.answer()


def the_store_and_the_pages_are_shown(s):
    for name in ("show_store", "show_findings", "show_stats", "metrics", "healthz", "readyz", "openapi"):
        s.call(name)
    for name in ("dashboard", "dashboard_script", "dashboard_style"):
        s.call(name)
    s.call("show_stats", 400, query={"what": "is it"})


def sessions_speak_the_contract(s):
    s.call("begin_session", 400, body={"client": "0" * 32})
    begun = s.call("begin_session", body={"client": uuid.uuid4().hex, "host": "check", "grace_ms": 60_000}).json
    at = {"session": begun["session"]}
    by = begun["now_ns"] + 3_600_000_000_000
    write = {"mode": "exclusive", "weight": READY_CAPACITY, "capacity": READY_CAPACITY, "ttl_ns": 60_000_000_000}

    def verb(what, want=200, /, **words):
        code = words.pop("code", None)
        return s.call("session_" + what, want, code, at=at, body={"by_ns": by, **words}).json

    lock, other, number = name_of("contract"), name_of("other"), name_of("counter")
    with s.stream("session_events", at=at) as events:
        events.until("hello")
        if verb("enter", name=lock, owner=1, **write)["what"] != "granted":
            raise Wrong("A free lock was not granted to a session.")
        verb("settle", name=lock, owner=1)
        if verb("renew", leases=[{"name": lock, "owner": 1}])["leases"][0]["verdict"] != "held":
            raise Wrong("What a session holds is not held.")
        events.until("beat")
        if verb("enter", name=lock, owner=2, **write)["what"] != "waiting":
            raise Wrong("A second owner does not wait.")
        verb("inspect", name=lock)
        verb("list", prefix="openapi/", limit=10)
        verb("leave", name=lock, owner=2)
        verb("downgrade", name=lock, owner=1, to="shared")
        verb("release", name=lock, owner=1)
        verb("release", 404, code="not_held", name=lock, owner=99)
        verb("count", name=number, op="create", operand=3, keep_ns=60_000_000_000)
        seen = verb("count", name=number, op="read")["version"]
        verb("list_counters", prefix="openapi/", limit=10)
        verb("watch", name=number, kind="counter", seen=seen, watch=1)
        verb("count", name=number, op="add", operand=-1, keep_ns=60_000_000_000)
        events.until("changed")
        s.call("session_unwatch", at=at, body={"watch": 1})
        can_several = begun["capabilities"]["atomic_multi"]
        verb("enter_all", 200 if can_several else 501, asks=[{"name": other, "owner": 3, **write}])
        verb("revoke", name=other)
        verb("diagnose")
        s.call("session_inspect", 409, "late", at=at, body={"name": lock, "by_ns": 0})
        for each in ("enter", "list", "count", "inspect"):
            verb(each, 400, nonsense=1)
        s.call("end_session", 204, at=at)
        events.until("ended")
    for name in [each for each in s.document.operations if each.startswith("session_")]:
        body = None if name == "session_events" else {"by_ns": by, "watch": 1}
        s.call(name, 404, "no_session", at=at, body=body)
    s.call("end_session", 404, "no_session", at=at)


def every_operation_refuses_what_is_no_request_for_it(s):
    for each in s.document.operations.values():
        how = {"at": example(each)}
        s.call(each.name, 403, "bad_host", headers={"Host": "elsewhere.example"}, **how)
        if each.method != "GET":
            s.call(each.name, 403, "bad_origin", headers={"Origin": "https://elsewhere.example"}, **how)
        s.call(each.name, 431, headers={"X-Long": "x" * 20_000}, **how)
        s.call(each.name, 413, raw=b" " * 70_000, headers={"Content-Type": "application/json"}, **how)
        s.call(each.name, 415, raw=b"{}", headers={"Content-Type": "text/plain"}, **how)
        s.call(each.name, 400, query={"no_such_parameter": 1}, **how)
        if "{name}" in each.path:
            s.call(each.name, 400, "misconfigured", at={"name": "a//b"})
        if each.request_schema():
            unknown = {**minimal(each), "no_such_field": 1}
            is_session = "{session}" in each.path
            s.call(each.name, 404 if is_session else refusal_of(each), body=unknown, **how)


def refusal_of(operation):
    # A lease that there is not is told after the body was judged.
    return 400


def example(operation):
    values = {"name": "narrower/example", "lease": NO_LEASE, "session": NO_LEASE}
    return {each: value for each, value in values.items() if "{" + each + "}" in operation.path}


def minimal(operation):
    values = {"names": ["openapi/minimal"], "of": 1, "count": 1, "client": "f" * 32, "by_ns": 0, "watch": 1}
    return {each: values[each] for each in operation.request_schema().get("required", [])}


def methods_are_those_of_the_document(s):
    for path in s.document.raw["paths"]:
        described = s.document.methods_of(path)
        operation = next(each for each in s.document.operations.values() if each.path == path)
        target = s.target(operation, example(operation), None)
        for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"):
            if method in described:
                continue
            answer = s.ask(method, target)
            if answer.status != 405:
                raise Wrong(f"{method} {path} is not described, and is answered with {answer.status}.")
            if method != "HEAD":
                s.document.judge_answer(f"405 of {path}", s.document.elsewhere[405], answer)
            allowed = set(answer.headers["Allow"].split(", "))
            if allowed != described:
                raise Wrong(f"{path} allows {sorted(allowed)}, and {sorted(described)} are described.")
    for path in ("/v1", "/v1/", "/v1/locks/", "/v1/locks/a:no_such_verb", "/v2/locks", "/index.html", "/v1/leases"):
        answer = s.ask("GET", path)
        if answer.status != 404:
            raise Wrong(f"GET {path} is not described, and is answered with {answer.status}.")
        s.document.judge_answer(f"404 of {path}", s.document.elsewhere[404], answer)


def keys_are_needed(s):
    """Where the service has keys."""
    for each in s.document.operations.values():
        if each.is_open:
            continue
        for key in (None, "f" * 64):
            s.call(each.name, 401, "no_key", at=example(each), body=minimal_body(each), key=key)
    for each in s.document.operations.values():
        if each.is_open and each.name != "readyz":
            s.call(each.name, key=None)


def a_narrow_key_does_no_more_than_it_may(s, key):
    for each in s.document.operations.values():
        is_for_names = "{name}" in each.path
        if "{session}" in each.path or each.is_open or not (is_for_names or each.scope in ("inspect", "break")):
            continue
        s.call(each.name, 403, "denied", at=example(each), body=minimal_body(each), key=key)
    s.call("acquire_locks", 403, "denied", body={"names": ["narrow/a", "wide/b"]}, key=key)
    s.call("plain_lock", 403, "denied", query={"name": "wide"}, key=key)
    name = f"narrow/{uuid.uuid4().hex}"
    lease = s.call("acquire_lock", at={"name": name}, body={"ttl": TTL}, key=key).json["lease"]
    s.call("show_lease", 404, "not_held", at={"lease": lease})  # it is another key's
    s.call("release_lease", 204, at={"lease": lease}, key=key)


def minimal_body(operation):
    return minimal(operation) if operation.request_schema() else None


def one_lease_too_many_is_refused(s, most):
    taken = []
    for i in range(most + 1):
        name = name_of(f"many/{i}")
        answer = s.ask("POST", f"/lock?name={urllib.parse.quote(name)}&ttl={TTL}")
        if answer.status == 429:
            break
        taken.append(answer.text.split()[0])
    else:
        raise Wrong(f"{most + 1} leases were given, and {most} were to be the limit.")
    s.call("plain_lock", 429, "too_many", query={"name": name_of("one_more")})
    for each in ("acquire_lock", "acquire_permits", "campaign", "hold_lock"):
        body = {"of": 1} if each == "acquire_permits" else {}
        s.call(each, 429, "too_many", at={"name": name_of("one_more")}, body=body)
    s.call("acquire_locks", 429, "too_many", body={"names": [name_of("one_more")]})
    for lease in taken:
        s.call("release_lease", 204, at={"lease": lease})


def whoever_waits_hears_of_the_end(s, service):
    at = {"name": name_of("end")}
    acquired(s, at["name"])
    latch = {"name": name_of("end")}
    s.call("create_latch", at=latch, body={"count": 1})
    waits = [
        s.in_background("acquire_lock", want=503, code="stopping", at=at, body={"wait": "10m"}),
        s.in_background("plain_lock", want=503, code="stopping", query={"name": at["name"], "wait": "10m"}),
        s.in_background("wait_for_latch", want=503, code="stopping", at=latch, body={"wait": "10m"}),
    ]
    until(lambda: s.call("show_stats").json["waiting"] >= len(waits), "all of them wait")
    os.kill(service, signal.SIGTERM)
    for each in waits:
        each.answer()


SCENARIOS = (
    a_lock_is_taken_and_given_back,
    what_was_lost_is_gone,
    modes_change,
    several_are_taken_at_once,
    a_lock_lives_as_long_as_its_connection,
    a_lock_lives_as_long_as_a_process,
    permits_are_counted,
    latches_open,
    leaders_are_elected,
    shells_get_text,
    operators_see_and_break,
    circles_are_found,
    the_store_and_the_pages_are_shown,
    sessions_speak_the_contract,
    every_operation_refuses_what_is_no_request_for_it,
    methods_are_those_of_the_document,
)


class Check:
    def __init__(self, client):
        self.client, self.faults = client, []

    def run(self, scenario, *more):
        try:
            scenario(self.client, *more)
        except Exception as failure:  # the others are to be heard, too
            kind = "" if isinstance(failure, Wrong) else f"{type(failure).__name__}: "
            self.faults.append(f"{scenario.__name__}: {kind}{failure}")

    def slow(self, half):
        answer = half.answer()
        self.client.judge(self.client.document.operations["acquire_locks"], answer, 408, "slow_request")

    def compare_with(self, sources):
        there, said = paths_in(pathlib.Path(sources)), set(self.client.document.raw["paths"])
        self.faults += [f"{path} is a route, and is not described." for path in sorted(there - said)]
        self.faults += [f"{path} is described, and is no route." for path in sorted(said - there)]

    def report(self):
        for each in self.client.document.operations.values():
            left = sorted(set(each.responses) - each.reached)
            print(f"{each.name}: {' '.join(map(str, sorted(each.reached)))}; not reached: {' '.join(map(str, left))}")
            # What an operation is for must have worked, unless the store cannot do it, and this was said.
            if not any(200 <= status < 300 or status == 501 for status in each.reached):
                self.faults.append(f"{each.name} was never seen to work.")
        for sentence in self.faults:
            print(sentence)
        return 1 if self.faults else 0


def main():
    words = argparse.ArgumentParser(usage=__doc__)
    words.add_argument("base")
    words.add_argument("--key")
    words.add_argument("--narrow-key")
    words.add_argument("--sources")
    words.add_argument("--leases", type=int)
    words.add_argument("--pid", type=int)
    given = words.parse_args()
    client = Client(urllib.parse.urlsplit(given.base), None, given.key)
    client.document = Document(client.ask("GET", "/openapi.json").text)
    check = Check(client)
    check.faults += client.document.faults()
    if given.sources:
        check.compare_with(given.sources)
    half = client.half_request()
    for scenario in SCENARIOS:
        check.run(scenario)
    if given.key:
        check.run(keys_are_needed)
    if given.narrow_key:
        check.run(a_narrow_key_does_no_more_than_it_may, given.narrow_key)
    check.run(lambda _: check.slow(half))
    if given.leases:
        check.run(one_lease_too_many_is_refused, given.leases)
    if given.pid:
        check.run(whoever_waits_hears_of_the_end, given.pid)
    return check.report()


if __name__ == "__main__":
    sys.exit(main())
