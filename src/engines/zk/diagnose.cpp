// What the ensemble tells about itself, and what that means for locks (`holdfast doctor`).
#include "engines/common/doctor_checks.hpp"
#include "engines/common/store_address.hpp"
#include "engines/zk/zk_engine.hpp"

#include "support/text.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace holdfast::engines::zk {

namespace {

using namespace std::chrono_literals;
using level = finding::level;

// A connection of its own, for one question before or instead of a session.
struct greeting_answer {
  std::string said;
  std::optional<error> why{};
};

class whole_chunk final : public net::framing {
  result<frame> next(std::string_view bytes) override { return frame{.length = bytes.size()}; }
};
class first_frame final : public net::framing {
  result<frame> next(std::string_view bytes) override {
    const auto found = jute::next_frame(bytes);
    if (!found) return found.error();
    return frame{.length = found->length};
  }
};

template <class Framing>
greeting_answer greet(net::reactor& on, const settings& how, std::size_t member, std::string words,
                      const call& limits) {
  greeting_answer out;
  net::channel_options options;
  options.where = how.where[member];
  options.description = how.names[member];
  options.make_framing = [] { return std::make_unique<Framing>(); };
  options.greeting = std::move(words);
  options.greeting_replies = 1;
  options.greeted = [&out](std::string_view frames) -> result<void> {
    out.said = frames;
    return {};
  };
  options.connect_timeout = 1s;
  net::channel once{on, std::move(options)};
  std::string into;
  const net::limits until{std::min(limits.deadline, std::chrono::steady_clock::now() + 2s),
                          limits.stop};
  std::string close;
  jute::append_close(close, 1);  // of a session; of anything else it does no harm
  if (const auto got = once.exchange(close, 0, until, into); !got) out.why = got.error();
  return out;
}

// The session that the server gives for the asked length.
std::optional<nanoseconds> negotiated(net::reactor& on, const settings& how, std::int32_t asked,
                                      const call& limits) {
  for (std::size_t member = 0; member < how.where.size(); ++member) {
    std::string words;
    jute::connecting hello;
    hello.timeout_ms = asked;
    jute::append_connect(words, hello);
    const auto got = greet<first_frame>(on, how, member, std::move(words), limits);
    std::string_view rest = got.said;
    if (rest.empty()) continue;
    const auto said = jute::read_connected(jute::take_frame(rest));
    if (said && said->timeout_ms > 0) return std::chrono::milliseconds{said->timeout_ms};
  }
  return std::nullopt;
}

std::string_view line_after(std::string_view text, std::string_view key) {
  const auto at = text.find(key);
  if (at == std::string_view::npos) return {};
  text.remove_prefix(at + key.size());
  return text.substr(0, text.find('\n'));
}

struct server_words {
  std::string at, version, mode;
  bool is_mute = false;  // it answers, but not this
  std::string why;       // not
};

std::vector<server_words> ask_servers(net::reactor& on, const settings& how, const call& limits) {
  std::vector<server_words> out;
  for (std::size_t i = 0; i < how.where.size(); ++i) {
    auto& server = out.emplace_back();
    server.at = how.names[i];
    const auto got = greet<whole_chunk>(on, how, i, "srvr", limits);
    server.mode = line_after(got.said, "Mode: ");
    server.version = line_after(got.said, "Zookeeper version: ");
    server.version = server.version.substr(0, server.version.find_first_of("-,"));
    server.is_mute = server.mode.empty() && !got.said.empty();
    if (got.said.empty()) server.why = got.why ? got.why->message() : "no answer";
  }
  return out;
}

finding check_servers(const std::vector<server_words>& servers) {
  std::vector<std::string> away, mute, modes;
  for (const auto& server : servers) {
    if (!server.why.empty()) away.push_back(server.at);
    if (server.is_mute) mute.push_back(server.at);
    if (!server.mode.empty()) modes.push_back(fmt::format("{} {}", server.at, server.mode));
  }
  if (!away.empty())
    return {level::warning, "servers of the address",
            fmt::format("{} of {} do not answer: {}. We go on with the others.", away.size(),
                        servers.size(), fmt::join(away, ", "))};
  if (!mute.empty())
    return {level::note, "servers of the address",
            fmt::format("All answer, but {} may not be asked for its state (srvr is not in "
                        "4lw.commands.whitelist).",
                        fmt::join(mute, ", "))};
  return {level::good, "servers of the address",
          fmt::format("All answer: {}.", fmt::join(modes, ", "))};
}

finding check_quorum(const std::vector<server_words>& servers) {
  const auto count = [&](std::string_view mode) {
    return std::ranges::count(servers, mode,
                              [](const server_words& s) { return std::string_view{s.mode}; });
  };
  if (count("standalone") > 0)
    return {servers.size() > 1 ? level::bad : level::note, "quorum",
            servers.size() > 1
                ? "Some servers of the address are standalone: they know nothing of each other, "
                  "and each "
                  "grants the same lock. Make them one ensemble, or name one only."
                : "A single server: when it is away there are no locks. Three make an ensemble."};
  if (count("leader") > 1)
    return {level::bad, "quorum", "More than one server says that it leads: not one ensemble."};
  if (count("leader") + count("follower") + count("observer") == 0)
    return {level::note, "quorum", "No server told its role."};
  if (count("leader") == 0 && count("follower") < static_cast<std::ptrdiff_t>(servers.size()))
    return {level::note, "quorum", "The leader is not among the servers that told their role."};
  return {level::good, "quorum",
          fmt::format("{} leader, {} followers, {} observers in this address.", count("leader"),
                      count("follower"), count("observer"))};
}

finding check_version(const std::vector<server_words>& servers) {
  std::vector<std::string> versions;
  for (const auto& server : servers)
    if (!server.version.empty() && std::ranges::find(versions, server.version) == versions.end())
      versions.push_back(server.version);
  if (versions.empty())
    return {level::note, "version", "No server told its version; 3.5 or newer is needed."};
  const bool old = std::ranges::any_of(
      versions, [](const std::string& v) { return v.starts_with("3.4") || v.starts_with("3.3"); });
  const auto spoken = fmt::format("ZooKeeper {}", fmt::join(versions, ", "));
  if (old) return {level::bad, "version", spoken + " is too old: 3.5 is needed."};
  return {level::good, "version", spoken + "."};
}

finding check_session(const settings& how, nanoseconds given, std::optional<nanoseconds> least,
                      std::optional<nanoseconds> most) {
  const auto bounds =
      least && most
          ? fmt::format(
                " The servers give {} to {} (a tick of {} or less, unless "
                "minSessionTimeout is set).",
                format_duration(*least), format_duration(*most), format_duration(*least / 2))
          : std::string{};
  if (given == how.session)
    return {level::good, "session",
            fmt::format("{}, as asked for.{}", format_duration(given), bounds)};
  return {level::warning, "session",
          fmt::format(
              "{} were asked for, and the server gave {}: dead holders are noticed after that.{}",
              format_duration(how.session), format_duration(given), bounds)};
}

finding check_rights(const settings& how, const result<answers>& got) {
  if (how.is_open_to_all && !how.is_logged_in())
    return {level::warning, "rights",
            "No login: our nodes are open to everybody who reaches the ensemble (world:anyone), "
            "who can then break any "
            "lock. Use zk://user@host with a password, or zks:// with a client certificate."};
  if (how.is_open_to_all)
    return {level::warning, "rights",
            "acl=open: our nodes are open to everybody who reaches the ensemble."};
  const auto rights = got ? jute::read_acls((*got)[0].rest) : result<jute::acls>{got.error()};
  if (rights && got->ok(0)) {
    const bool is_open = std::ranges::any_of(rights->rights, [](const jute::acl& one) {
      return one.scheme == "world" && (one.permissions & jute::permission::erase) != 0;
    });
    if (is_open && !how.root.empty())
      return {level::note, "rights",
              "Our nodes are ours alone, but everybody may delete empty nodes below the chroot; "
              "give it an ACL of its own."};
  }
  return {level::good, "rights", "Our nodes belong to our login alone (creator-all)."};
}

}  // namespace

result<std::vector<finding>> zk_engine::diagnose(const call& limits) {
  std::vector<finding> out;
  auto& on = ensemble_->driver();
  const auto servers = ask_servers(on, how_, limits);
  out.push_back(check_version(servers));
  out.push_back(check_servers(servers));
  out.push_back(check_quorum(servers));
  const auto session = ensemble_->current();
  out.push_back(check_session(how_, session.length, negotiated(on, how_, 1, limits),
                              negotiated(on, how_, 2'000'000'000, limits)));
  batch rights;
  rights.rights(ensemble_->root());
  out.push_back(check_rights(how_, ensemble_->run(rights, limits)));
  encryption how;
  how.is_on = how_.where.front().use_tls;
  how.is_local = std::ranges::all_of(
      how_.where, [](const net::address& at) { return is_this_machine(at.host); });
  how.to_turn_on = "zks:// (and secureClientPort on the servers)";
  out.push_back(check_encryption(how));
  std::vector<nanoseconds> took;
  for (int i = 0; i < 9; ++i) {
    batch agree;
    agree.agree(ensemble_->root());
    const auto begun = std::chrono::steady_clock::now();
    if (ensemble_->run(agree, limits)) took.push_back(std::chrono::steady_clock::now() - begun);
  }
  out.push_back(
      check_round_trips(std::move(took), {session.length / 10, "session", session.length}));
  return out;
}

}  // namespace holdfast::engines::zk
