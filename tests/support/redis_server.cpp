#include "support/redis_server.hpp"

#include "resp/resp.hpp"
#include "support/shared_server.hpp"
#include "support/wait_until.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace holdfast::testing {

namespace {

std::optional<std::string> redis_program() {
  if (const char* given = std::getenv("HOLDFAST_REDIS_SERVER")) return given;
  return find_program("redis-server");
}

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

std::string shown(const resp::value& v) {
  using kind = resp::value::kind;
  switch (v.what) {
    case kind::null:
      return "(nil)";
    case kind::error:
      return fmt::format("(error) {}", v.text);
    case kind::integer:
      return fmt::format("{}", v.integer);
    case kind::boolean:
      return v.integer != 0 ? "(true)" : "(false)";
    case kind::array:
    case kind::map:
    case kind::set:
    case kind::push: {
      std::string list;
      for (const auto& item : v.items) list += (list.empty() ? "" : " ") + shown(item);
      return '[' + list + ']';
    }
    default:
      return std::string{v.text};
  }
}

// Blocking, one command at a time, no pipelining: not what is tested, so it had better be plain.
class plain_connection {
 public:
  plain_connection(const std::string& path, std::chrono::nanoseconds limit)
      : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) {
      throw std::runtime_error(path + " is too long for a socket");
    }
    path.copy(address.sun_path, path.size());
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(limit).count();
    const timeval wait{us / 1'000'000, us % 1'000'000};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    ::setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
    if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      const int reason = errno;
      ::close(socket_);
      errno = reason;
      fail(path);
    }
  }
  plain_connection(const plain_connection&) = delete;
  plain_connection& operator=(const plain_connection&) = delete;
  ~plain_connection() { ::close(socket_); }

  std::string ask(const std::vector<std::string_view>& words) {
    std::string request;
    resp::append_head(request, words.size());
    for (const auto word : words) resp::append_word(request, word);
    write(request);
    resp::frame_scanner framing;
    std::string reply;
    for (;;) {
      if (framing.next(reply).value().length != 0) break;
      read_more(reply);
    }
    std::string_view bytes = reply;
    return shown(resp::take(bytes).value());
  }

 private:
  void write(std::string_view bytes) const {
    while (!bytes.empty()) {
      const auto count = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count < 0 && errno != EINTR) fail("no request to redis");
      if (count > 0) bytes.remove_prefix(static_cast<std::size_t>(count));
    }
  }
  void read_more(std::string& into) const {
    std::array<char, 16384> buffer;  // NOLINT: filled by recv
    const auto count = ::recv(socket_, buffer.data(), buffer.size(), 0);
    if (count == 0) throw std::runtime_error("no reply from redis: it closed the connection");
    if (count < 0 && errno != EINTR) fail("no reply from redis");
    if (count > 0) into.append(buffer.data(), static_cast<std::size_t>(count));
  }

  int socket_;
};

}  // namespace

availability redis_server::available() {
  if (redis_program()) return {true, {}};
  return {false, "redis-server is not in the PATH; tools/setup test installs it"};
}

redis_server::redis_server() : redis_server(options{}) {}

redis_server::redis_server(options how) : how_(std::move(how)) {
  if (how_.over != transport::unix_socket) port_ = std::make_unique<reserved_port>();
  if (how_.over == transport::tls) {
    authority_ = std::make_unique<certificate_authority>(dir_.path());
    certificate_ = authority_->issue("server", how_.certified);
    ca_file_ = authority_->file();
  }
  write_config();
  start();
}

redis_server::~redis_server() { process_.kill(); }

void redis_server::write_config() const {
  std::ofstream file{dir_.file("redis.conf")};
  file << "bind " << (how_.network == nullptr ? "" : host() + ' ') << "127.0.0.1\n"
       << "protected-mode no\n"
       << "port " << (how_.over == transport::tcp ? port() : 0) << '\n'
       << "unixsocket " << socket_path() << '\n'
       << "unixsocketperm 700\n"
       << "dir " << dir_.path().string() << '\n'
       << "save \"\"\n"
       << "appendonly no\n"
       << "enable-debug-command yes\n"
       << "repl-diskless-sync-delay 0\n";
  if (how_.over == transport::tls) {
    file << "tls-port " << port() << '\n'
         << "tls-cert-file " << certificate_.file << '\n'
         << "tls-key-file " << certificate_.key << '\n'
         << "tls-ca-cert-file " << ca_file_ << '\n'
         << "tls-auth-clients optional\n";
  }
  for (const auto& line : how_.config) file << line << '\n';
  if (!file.flush()) fail(dir_.file("redis.conf"));
}

void redis_server::start() {
  const auto program = redis_program();
  if (!program) throw std::runtime_error(available().why);
  std::vector<std::string> words;
  if (!how_.environment.empty()) words.emplace_back("/usr/bin/env");
  words.insert(words.end(), how_.environment.begin(), how_.environment.end());
  words.push_back(*program);
  words.push_back(dir_.file("redis.conf"));
  if (how_.is_sentinel) words.emplace_back("--sentinel");
  const auto begin = [&] { process_ = process{std::move(words), dir_.file("log")}; };
  if (how_.network == nullptr) {
    begin();
  } else {
    how_.network->at(how_.place, begin);
  }
  const bool up = wait_until([this] { return !process_.is_running() || answers(); });
  if (!up || !process_.is_running()) {
    throw std::runtime_error("redis-server does not start; it says:\n" + log());
  }
}

void redis_server::restart() {
  process_.kill();
  start();
}

bool redis_server::answers() const {
  try {
    const auto reply = plain_connection{socket_path(), patience}.ask({"PING"});
    return !reply.starts_with("(error) LOADING");  // NOAUTH and the like are answers, too
  } catch (const std::runtime_error&) {
    return false;
  }
}

std::string redis_server::host() const {
  return how_.network == nullptr ? "127.0.0.1" : how_.network->address(how_.place);
}

std::string redis_server::url() const {
  switch (how_.over) {
    case transport::tcp:
      return fmt::format("redis://{}:{}", host(), port());
    case transport::tls:
      return fmt::format("rediss://{}:{}", host(), port());
    case transport::unix_socket:
      break;
  }
  return "unix:" + socket_path();
}

std::string redis_server::log() const {
  std::ostringstream text;
  text << std::ifstream{dir_.file("log")}.rdbuf();
  return text.str();
}

std::string redis_server::command(const std::vector<std::string_view>& words,
                                  std::chrono::nanoseconds limit) const {
  plain_connection redis{socket_path(), limit};
  if (!how_.password.empty()) {
    const auto greeting = how_.user.empty() ? redis.ask({"AUTH", how_.password})
                                            : redis.ask({"AUTH", how_.user, how_.password});
    if (greeting != "OK") throw std::runtime_error("redis refuses the login: " + greeting);
  }
  return redis.ask(words);
}

std::string redis_server::try_command(const std::vector<std::string_view>& words) const {
  try {
    return command(words, std::chrono::seconds{1});
  } catch (const std::runtime_error&) {
    return {};
  }
}

redis_server& shared_redis() {
  static shared_server<redis_server> single;
  return *single;
}

}  // namespace holdfast::testing
