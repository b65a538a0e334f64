// MariaDB without us: the two statements of an uncontended lock in a bare loop over Connector/C, and the usual first
// attempt at a lock, which asks every 50 ms. The texts are those that our engine sends, as the server logged them.
#pragma once

#include "harness.hpp"

#include <holdfast/holdfast.hpp>

#include <fmt/format.h>
#include <mysql.h>

#include <memory>

namespace baseline {

// ---------------------------------------------------------------- a connection

// As our engine has them: each statement is a transaction, READ COMMITTED.
class sql_client {
 public:
  explicit sql_client(const std::string& address) : handle_(mysql_init(nullptr), &mysql_close) {
    const auto url = holdfast::store_url::parse(address).value();
    const auto& at = url.endpoints().front();
    if (mysql_real_connect(handle_.get(), at.host.c_str(), url.user().c_str(), url.secret().c_str(),
                           url.path().substr(1).c_str(), at.port.value_or(std::uint16_t{3306}),
                           nullptr, 0) == nullptr)
      throw std::runtime_error(mysql_error(handle_.get()));
    run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED");
  }

  void run(const std::string& text) {
    if (mysql_query(handle_.get(), text.c_str()) != 0)
      throw std::runtime_error(mysql_error(handle_.get()));
  }
  // The first row.
  std::vector<std::string> ask(const std::string& text) {
    run(text);
    const std::unique_ptr<MYSQL_RES, decltype(&mysql_free_result)> got{
        mysql_store_result(handle_.get()), &mysql_free_result};
    std::vector<std::string> out;
    if (auto* const row = got ? mysql_fetch_row(got.get()) : nullptr)
      for (unsigned i = 0; i < mysql_num_fields(got.get()); ++i)
        out.emplace_back(row[i] == nullptr ? "" : row[i]);
    return out;
  }
  double statements() { return std::stod(ask("SHOW GLOBAL STATUS LIKE 'Questions'").at(1)); }
  MYSQL* handle() const noexcept { return handle_.get(); }

 private:
  std::unique_ptr<MYSQL, decltype(&mysql_close)> handle_;
};

// ---------------------------------------------------------------- what our engine sends

struct pair_texts {
  std::string acquire, release;
};

// Has the server log what a client sends for a pair. Needs an administrator.
inline void log_a_pair(const std::string& url) {
  sql_client admin{url};
  admin.run("SET GLOBAL log_output='TABLE', GLOBAL general_log=ON");
  {
    holdfast::mutex lock{holdfast::client::open(url), "watched"};
    auto held = lock.acquire().value();
    held.release().value();
  }
  admin.run("SET GLOBAL general_log=OFF");
}

inline pair_texts logged_pair(const std::string& url) {
  sql_client admin{url};
  const auto logged = [&](const std::string& pattern) {
    const auto row = admin.ask(
        "SELECT argument FROM mysql.general_log WHERE command_type='Prepare' AND argument LIKE '" +
        pattern + "' LIMIT 1");
    return row.empty() ? std::string{} : row[0];
  };
  pair_texts out{logged("INSERT INTO holdfast_lock%LAST\\_INSERT\\_ID%"),
                 logged("UPDATE holdfast_lock SET expires=0,%")};
  const auto values = [](const std::string& text) {
    return std::count(text.begin(), text.end(), '?');
  };
  if (values(out.acquire) != 10 || values(out.release) != 3)
    throw std::runtime_error("The engine's statements have changed; bare_lock must follow.");
  return out;
}

// ---------------------------------------------------------------- the bare lock

class bare_lock {
 public:
  bare_lock(const std::string& url, const pair_texts& texts, std::string name)
      : client_(url),
        acquire_(prepare(texts.acquire)),
        release_(prepare(texts.release)),
        name_(std::move(name)),
        self_(fmt::format("{:016}", ::getpid())) {
    bind();
  }

  bool try_lock() {
    ++seq_;
    execute(acquire_);
    return mysql_stmt_affected_rows(acquire_.get()) > 0;
  }
  void unlock() { execute(release_); }
  // Polls.
  void lock() {
    while (!try_lock()) std::this_thread::sleep_for(std::chrono::milliseconds{50});
  }

 private:
  using statement = std::unique_ptr<MYSQL_STMT, decltype(&mysql_stmt_close)>;

  statement prepare(const std::string& text) {
    statement out{mysql_stmt_init(client_.handle()), &mysql_stmt_close};
    if (mysql_stmt_prepare(out.get(), text.data(), text.size()) != 0)
      throw std::runtime_error(mysql_stmt_error(out.get()));
    return out;
  }
  static void execute(const statement& what) {
    if (mysql_stmt_execute(what.get()) != 0) throw std::runtime_error(mysql_stmt_error(what.get()));
  }
  static MYSQL_BIND bytes(std::string& value) {
    MYSQL_BIND out{};
    out.buffer_type = MYSQL_TYPE_BLOB;
    out.buffer = value.data();
    out.buffer_length = value.size();
    return out;
  }
  static MYSQL_BIND number(std::uint64_t& value) {
    MYSQL_BIND out{};
    out.buffer_type = MYSQL_TYPE_LONGLONG;
    out.buffer = &value;
    out.is_unsigned = 1;
    return out;
  }
  void bind() {
    in_ = {bytes(name_),   number(whole_), bytes(self_),   number(seq_), number(mode_),
           number(whole_), number(ttl_),   number(grace_), number(ttl_), bytes(label_)};
    out_ = {bytes(name_), bytes(self_), number(seq_)};
    if (mysql_stmt_bind_param(acquire_.get(), in_.data()) != 0 ||
        mysql_stmt_bind_param(release_.get(), out_.data()) != 0)
      throw std::runtime_error("The values cannot be bound.");
  }

  sql_client client_;
  statement acquire_, release_;
  std::string name_, self_, label_;
  std::uint64_t seq_ = 0, mode_ = 0, whole_ = 1U << 30U, ttl_ = 10'000'000, grace_ = 2'000'000;
  std::array<MYSQL_BIND, 10> in_{};
  std::array<MYSQL_BIND, 3> out_{};
};

}  // namespace baseline
