#include "commands.hpp"

#include <algorithm>

namespace holdfast::cli {

namespace {

// With the letter that flock(1) has for it.
constexpr flag as(std::string_view letter, flag row) {
  row.letter = letter;
  return row;
}

constexpr flag json_flag{"--json", "", "print JSON, for programs"};
constexpr flag wait_for_flag =
    as("-w", {"--wait", "DURATION",
              "wait at most this long, then exit with 75 (default: as long as it takes); a bare "
              "number counts seconds"});
constexpr flag ttl_flag{
    "--ttl", "DURATION",
    "when this process is paused or cut off for longer than this, others may take the "
    "lock (default 10s); it is renewed all the time, so the command may run longer. Where the "
    "address has a grace (redis and mysql: 3s), a lock is lost after that long without a word "
    "from the server, however long its ttl"};
constexpr flag grace_flag{
    "--grace", "DURATION",
    "when the lock is lost, the time between SIGTERM and SIGKILL (default 5s)"};
constexpr flag label_flag{"--label", "TEXT",
                          "shown to others by ls, show and top; at most 64 bytes"};

std::vector<command> running() {
  return {
      {"run",
       "NAME",
       "run a command while holding a lock",
       "Waits for the lock NAME, runs CMD, gives the lock back and exits with CMD's own exit "
       "code.\n"
       "CMD runs in a process group of its own. Signals are passed on to the whole group, and CMD "
       "finds its fencing token in HOLDFAST_TOKEN, the name in HOLDFAST_LOCK and the store in "
       "HOLDFAST_STORE (without its password; password_file and password_env are handed on). "
       "Should the lock be lost (the store says so, or it could not be renewed in time), the "
       "group gets SIGTERM at once, SIGKILL after the grace, and the exit code is 76. Should "
       "holdfast itself be killed, the group is ended as well, and the lock is given back.\n"
       "The lock is given back when CMD itself has ended, as with flock -o. What CMD has left "
       "running in the background goes on without it, unless --wait-group is given.\n"
       "On a terminal, a wait of more than a second says which holder it is for.",
       {as("-s", {"--shared", "", "hold it together with other --shared holders, as a reader", "",
                  "--permits"}),
        {"--permits", "K/N", "take K of the N permits of a semaphore (just N: one of N)"},
        wait_for_flag,
        as("-n", {"--no-wait", "", "exit with 75 at once when it is held by others", "", "--wait"}),
        as("-E", {"--conflict-exit-code", "CODE",
                  "exit with this, 0 to 255, instead of 75 when the lock was not acquired"}),
        ttl_flag,
        {"--max-hold", "DURATION", "give the lock up, as lost, after holding it this long"},
        {"--at-least", "DURATION",
         "hold the lock at least this long, even when the command ends sooner, so that a host "
         "whose "
         "clock is late does not run the same job again; a signal ends that wait"},
        {"--wait-group", "",
         "hold the lock until every process of the command's group has ended, and not only the "
         "command itself"},
        {"--priority", "NUMBER", "higher goes first among the waiters (default 0)"},
        label_flag,
        {"--on-lost", "WHAT", "when the lock is lost: kill the command (default) or only warn",
         "kill|warn"},
        grace_flag},
       {{"holdfast run backup -- rsync -a /srv/ /mnt/backup/", "one backup at a time"},
        {"holdfast run backup --no-wait -- ./backup.sh || [ $? = 75 ]",
         "skip it when one is running already"},
        {"holdfast run nightly -n --at-least 5m -- ./report.sh || [ $? = 75 ]",
         "once per night, on whichever host is first, though their clocks differ"},
        {"holdfast run report --shared --wait 10s -- ./report", "many readers, no writer"},
        {"holdfast run build --permits 1/4 -- make", "at most four of these at a time"}},
       &run,
       true},
      {"elect",
       "NAME",
       "run a command while leader",
       "Waits to become the leader of NAME and runs CMD as long as it is. When the leadership is "
       "lost, CMD's process group is ended (SIGTERM, SIGKILL after the grace) and holdfast stands "
       "for election again. When CMD ends by itself, holdfast resigns and exits with its exit "
       "code. CMD finds its term in HOLDFAST_TOKEN.",
       {{"--value", "TEXT",
         "what the others see of the leader, such as its address; at most 64 bytes"},
        ttl_flag,
        grace_flag},
       {{"holdfast elect scheduler --value \"$HOSTNAME\" -- ./scheduler",
         "one scheduler among all the processes that run this line"}},
       &elect,
       true},
  };
}

std::vector<command> latches() {
  return {
      {"latch set",
       "NAME N",
       "create a latch that opens after N counts, or start it anew",
       "A latch is a number that goes down to zero, and lets all waiters through from then on.",
       {json_flag},
       {{"holdfast latch set tiles 4", "four workers are about to start"}},
       &latch_set},
      {"latch down",
       "NAME [K]",
       "count a latch down by one, or by K",
       "Exits with 1 when there is no such latch. Prints how many counts are left.",
       {json_flag},
       {{"./render 1 && holdfast latch down tiles", "one worker is done"}},
       &latch_down},
      {"latch wait",
       "NAME",
       "wait until a latch is open",
       "Waits for the latch to be created, too. Exits with 75 when it was not open in time.",
       {wait_for_flag, json_flag},
       {{"holdfast latch wait tiles --wait 10m && ./stitch", "go on when all four are done"}},
       &latch_wait},
      {"latch show",
       "NAME",
       "print how many counts of a latch are left",
       "0 is an open latch. Exits with 1 when there is no such latch.",
       {json_flag},
       {{"holdfast latch show tiles", ""}},
       &latch_show},
      {"latch ls",
       "[PREFIX]",
       "list the latches",
       "One line for each: its name, how many counts are left (0 is an open latch), and when it is "
       "forgotten if it stays unchanged. Barriers are not listed.",
       {json_flag},
       {{"holdfast latch ls", ""}, {"holdfast latch ls render/", "only those below render/"}},
       &latch_ls},
      {"latch rm",
       "NAME",
       "forget a latch",
       "Those who wait for it go on waiting, for the next one of that name. Exits with 1 when "
       "there "
       "is no such latch.",
       {json_flag},
       {{"holdfast latch rm tiles", ""}},
       &latch_rm},
  };
}

std::vector<command> looking() {
  return {
      {"ls",
       "[PREFIX]",
       "list the locks that are held or waited for",
       "One line for each holder: its lock, how it holds it, host:pid, its label, since when, when "
       "it "
       "would expire if it were not renewed, its fencing token, and how many wait for the lock.",
       {json_flag,
        {"--names", "", "print the names alone, one per line", "", "--json"},
        {"--prometheus", "", "print the text format of Prometheus, for a text collector", "",
         "--json|--names"}},
       {{"holdfast ls", ""},
        {"holdfast ls stock/ --json | jq -r '.[].name'", ""},
        {"holdfast ls --prometheus > locks.prom.new && mv locks.prom.new locks.prom",
         "for the text collector of a node exporter"}},
       &ls},
      {"show",
       "NAME",
       "show one lock: its holders, and its waiters in the order of service",
       "",
       {json_flag},
       {{"holdfast show backup", "its holder, and the next in the queue"}},
       &show},
      {"top",
       "[PREFIX]",
       "watch the locks live",
       "The busiest locks first, redrawn until you press q. Prints a plain snapshot when the "
       "output is no terminal.",
       {{"--interval", "DURATION", "time between two looks (default 1s)"},
        {"--count", "N", "end after N looks"}},
       {{"holdfast top", ""}, {"holdfast top --count 3 > locks.txt", ""}},
       &top},
      {"break",
       "NAME",
       "take a lock away from its holders",
       "Ends every grant of NAME, whichever client has it, and raises the token, so that late "
       "writes with an old one can be refused. The holders learn that they have lost it; the "
       "first waiter gets it.",
       {{"--yes", "", "do not ask; needed when there is no terminal to ask on"}, json_flag},
       {{"holdfast break backup", "after its holder hung, and you made sure it does no harm"}},
       &break_lock},
      {"explain",
       "",
       "say what this store guarantees, and what not",
       "What the store promises under which assumptions, and the bounds: how fast a dead holder's "
       "lock is free, how long a paused holder's.",
       {json_flag},
       {{"holdfast explain --store file:/srv/locks", ""}},
       &explain},
      {"doctor",
       "",
       "check the real server: is it set up so that locks are safe?",
       "Looks at the server behind the store (its version, role, eviction policy, persistence, "
       "rights, clock and more), changes nothing, and says what each thing means for locks, the "
       "worst first. Exits with 78 when something is bad, and with 0 when there are only warnings "
       "and notes. What the server refuses to tell is a note.",
       {json_flag},
       {{"holdfast doctor --store redis://redis.example/", ""},
        {"holdfast doctor --json | jq -r '.findings[] | select(.level == \"bad\") | .sentence'",
         ""}},
       &doctor},
  };
}

std::vector<command> serving() {
  return {
      {"serve",
       "",
       "serve these locks over HTTP, with a live page",
       "A lock service for programs in any language: leases that clients renew, locks that are "
       "held "
       "as long as a connection or a process lives, and a page in the browser that shows who holds "
       "what and who waits. Answers on loopback only, unless --keys and --tls-cert are given. Ends "
       "with SIGTERM: who waits is told to ask again, and leases that clients renew themselves "
       "stay "
       "for the next service with the same --state (on file:).",
       {{"--listen", "HOST:PORT", "where to listen (default 127.0.0.1:7420); port 0 is any"},
        {"--tls-cert", "FILE", "certificate chain, PEM; with --tls-key"},
        {"--tls-key", "FILE", "its private key, PEM"},
        {"--client-ca", "FILE", "clients must show a certificate of this authority, PEM"},
        {"--keys", "FILE",
         "who may do what: lines NAME SCOPES NAMES SHA256 as --new-key prints them, mode 0600"},
        {"--host", "NAMES",
         "names by which clients call this service, separated by commas; localhost and addresses "
         "need none"},
        {"--state", "DIR",
         "what a service keeps for its successor (default: $STATE_DIRECTORY, else below "
         "~/.local/state); one service at a time"},
        {"--config", "FILE", "lines NAME = VALUE, named like these flags; flags count more"},
        {"--new-key", "NAME", "print a fresh key and its line for --keys, and end"},
        {"--scopes", "LIST", "of the new key: acquire, inspect, break (default acquire,inspect)"},
        {"--names", "PATTERN", "of the new key: * or a prefix such as billing/* (default *)"}},
       {{"holdfast serve", ""},
        {"curl -X POST 'http://127.0.0.1:7420/lock?name=backup&ttl=30s'",
         "the lease and the token, one line each"},
        {"holdfast serve --new-key admin --scopes acquire,inspect,break", ""},
        {"holdfast serve --store etcd://10.0.0.5 --listen 0.0.0.0:7420 --keys keys --tls-cert "
         "c.pem "
         "--tls-key k.pem",
         "for other machines"}},
       &serve},
  };
}

std::vector<command> tools() {
  return {
      {"schema",
       "SCHEME",
       "print what a kind of store needs to be set up, such as tables",
       "SCHEME is the first word of the store's address, such as mysql. Prints text for the "
       "store's own command line, with the least rights that its users need as comments. Changes "
       "nothing, and opens no store. Prints nothing for stores that need nothing.",
       {},
       {{"holdfast schema mysql | mariadb thedatabase", "as a user who may create tables"}},
       &schema},
      {"bench",
       "",
       "measure this store",
       "Lock and unlock pairs without contention, with many threads and coroutines, re-entry, "
       "hand-off between threads and between processes with its fairness and growth, and the cost "
       "of renewals. Uses lock names below holdfast-bench/ and leaves nothing behind.",
       {{"--only", "WHICH", "one measurement only",
         "uncontended|threads|coroutines|reentry|local|processes|renewals"},
        {"--seconds", "S", "time for each line of the result (default 1)"},
        {"--threads", "LIST", "numbers of threads (default 1,8,64)"},
        {"--coroutines", "LIST", "numbers of coroutines (default 1,64,1000)"},
        {"--waiters", "LIST", "numbers of contending processes (default 2,8,32,128)"},
        {"--held", "N", "locks held during the measurement of renewals (default 10000)"},
        json_flag},
       {{"holdfast bench --only processes --waiters 2,8 --seconds 3", ""}},
       &bench},
      {"flash-sale",
       "",
       "sell one stock under every scheme, and see which sell too much",
       "Many buyers in several processes buy one item after the other of the same stock: each "
       "reads "
       "how many there are, thinks for a moment, and writes one fewer. What keeps two of them from "
       "thinking about the same number is the scheme: no lock, statements of the database, locks "
       "that people write by hand, and those of this library. The result is counted from the "
       "buyers' own record and from the stock that is left, never from what a lock says.\n"
       "With kill, a process is killed while its buyer holds the lock; with pause, it is stopped "
       "until others have sold, and then goes on to write. Without --stores the schemes that need "
       "no server are run, with the stock in a file. On servers it works with keys, tables and "
       "lock "
       "names of its own that begin with holdfast-sale or holdfast_sale, and removes its stock at "
       "the end; give it servers that nobody else needs at the moment, as their counters are read. "
       "Exits with 70 when a scheme failed under what it should bear.",
       {{"--stores", "URL,...",
         "the servers, one of each kind: redis, redlock, mysql, zk, etcd, consul; a comma ends an "
         "address only where the next one begins"},
        {"--schemes", "NAME,...", "these only, by name or by family (default: all)"},
        {"--list", "", "list the schemes, and why each is safe or not; sells nothing"},
        {"--buyers", "N", "so many buyers (default 16)"},
        {"--processes", "M", "in so many processes (default 4)"},
        {"--stock", "K", "so many to sell (default 400)"},
        {"--faults", "LIST", "none, kill, pause: one sale for each (default none)"},
        {"--think", "DURATION", "what a buyer does between its read and its write (default 500us)"},
        {"--ttl", "DURATION", "of the locks (default 2s)"},
        {"--json", "FILE", "write the result as JSON; - is the standard output"},
        {"--html", "FILE", "write it as one page for a browser; - is the standard output"},
        {"--lang", "WHAT", "of the sentences on the terminal (default: that of the environment)",
         "en|zh"}},
       {{"holdfast flash-sale --faults none,kill,pause", "what needs no server"},
        {"holdfast flash-sale --stores redis://127.0.0.1,mysql://root@127.0.0.1/test --html "
         "sale.html",
         "a page to show around"},
        {"holdfast flash-sale --list", ""}},
       &flash_sale},
      {"completion",
       "SHELL",
       "print a completion script for bash, zsh or fish",
       "",
       {},
       {{"source <(holdfast completion bash)", "for this shell"}},
       &completion},
      {"help", "[COMMAND] [MORE]", "explain a command", "", {}, {{"holdfast help run", ""}}, &help},
      {"man",
       "",
       "print the manual page",
       "",
       {},
       {{"holdfast man | man -l -", ""}},
       &man,
       false,
       true},
      {"version", "", "print the version", "", {}, {}, &version, false, true},
      {"bench-worker",
       "NAME",
       "one contender of bench",
       "",
       {{"--board", "FD", "shared memory of the measurement"},
        {"--index", "N", "its row there"},
        {"--parent", "PID", "ends with it"}},
       {},
       &bench_worker,
       false,
       true},
  };
}

}  // namespace

const std::vector<command>& commands() {
  static const std::vector<command> table = [] {
    std::vector<command> all;
    for (auto* chapter : {&running, &latches, &looking, &serving, &tools})
      for (auto& row : chapter()) all.push_back(std::move(row));
    return all;
  }();
  return table;
}

const std::vector<flag>& common_flags() {
  static const std::vector<flag> table{
      {"--store", "URL",
       "where the locks are (default: $HOLDFAST_STORE, else the embedded store of this user)"},
      {"--help", "", "explain this command"},
  };
  return table;
}

const command* find_command(std::string_view name) {
  const auto& all = commands();
  const auto it =
      std::find_if(all.begin(), all.end(), [name](const command& row) { return row.name == name; });
  return it == all.end() ? nullptr : &*it;
}

}  // namespace holdfast::cli
