"""kazoo as a peer in interop tests: takes and gives back locks as it is told, one command per line, and answers each
with one line. The commands are those of CuratorPeer.java, described in tests/support/zookeeper_peers.hpp.

    kazoo_peer.py CONNECT_STRING SESSION_TIMEOUT_MS
"""

import os
import sys
import threading

from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout

write_lock = threading.Lock()


def answer(line):
    with write_lock:
        print(line.replace("\n", " "), flush=True)


class Election:
    """Leads from the call of its function until that returns: run() is taken apart to look like a lock."""

    def __init__(self, client, path, identifier):
        self.election = client.Election(path, identifier)
        self.leads, self.leave = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self.election.run, args=(self.lead,), daemon=True)

    def lead(self):
        self.leads.set()
        self.leave.wait()

    def acquire(self, blocking=True, timeout=None):
        self.thread.start()
        if self.leads.wait(timeout if blocking else 0):
            return True
        self.leave.set()  # if it is elected just now
        self.election.cancel()
        self.thread.join()
        return False

    def release(self):
        self.leave.set()
        self.thread.join()


class Peer:
    def __init__(self, client):
        self.client = client
        self.locks = {}
        self.given = {}

    def obey(self, words):
        verb, rest = words[0], words[1:]
        if verb == "take":
            self.take(None, *rest)
        elif verb == "try":
            self.take(0, *rest)
        elif verb == "within":
            self.take(int(rest[0]) / 1000, *rest[1:])
        elif verb == "give":
            self.give(rest[0])
        elif verb == "again":  # the very object that was given back
            self.take_with(self.given[rest[0]], None, rest[0])
        elif verb == "leader":
            answer(" ".join(["leader"] + self.participants(*rest)[:1]))
        elif verb == "participants":
            answer(" ".join(["participants"] + self.participants(*rest)))
        elif verb == "session":
            answer("session 0x%x" % self.client.client_id[0])
        else:
            answer("failed: unknown command " + verb)

    def lock_of(self, kind, path, more):
        if kind == "election":
            return Election(self.client, path, more[0])
        if kind == "semaphore":
            return self.client.Semaphore(path, max_leases=int(more[0]))
        kinds = {"lock": self.client.Lock, "read": self.client.ReadLock, "write": self.client.WriteLock}
        # Unless told, kazoo does not see the nodes of others.
        return kinds[kind](path, extra_lock_patterns=more)

    def take(self, seconds, name, kind, path, *more):
        self.take_with(self.lock_of(kind, path, more), seconds, name)

    def take_with(self, lock, seconds, name):
        self.locks[name] = lock

        def wait():
            try:
                # With a timeout of 0 it would wait for ever.
                taken = lock.acquire(blocking=False) if seconds == 0 else lock.acquire(timeout=seconds)
            except LockTimeout:
                taken = False
            except Exception as e:
                answer("failed %s %r" % (name, e))
                return
            if not taken:
                del self.locks[name]
            answer(("taken " if taken else "busy ") + name)

        threading.Thread(target=wait, daemon=True).start()

    def give(self, name):
        lock = self.locks.pop(name, None)
        if lock is None:
            answer("failed %s is not held" % name)
            return
        lock.release()
        self.given[name] = lock
        answer("given " + name)

    def participants(self, kind, path):
        return self.client.Election(path).contenders() if kind == "election" else self.client.Lock(path).contenders()


def main():
    client = KazooClient(hosts=sys.argv[1], timeout=int(sys.argv[2]) / 1000)
    client.start()
    peer = Peer(client)
    for line in sys.stdin:
        if line == "quit\n":
            break
        try:
            peer.obey(line.split())
        except Exception as e:
            answer("failed %r" % e)
    client.stop()
    answer("bye")
    os._exit(0)  # a thread may still wait for its lock


main()
