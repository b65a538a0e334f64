// Consul without us: the two requests of a lock on one kept-alive connection, and the recipe of its own clients
// (api.Lock), by libcurl's easy interface.
#pragma once

#include "harness.hpp"

#include <curl/curl.h>
#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

namespace baseline {

class bare_consul {
 public:
  explicit bare_consul(std::uint16_t port) : port_(port) {
    option(CURLOPT_NOSIGNAL, 1L);
    option(CURLOPT_TCP_NODELAY, 1L);
    option(CURLOPT_PROXY, "");
    option(CURLOPT_WRITEFUNCTION, &bare_consul::on_body);
    option(CURLOPT_WRITEDATA, &body_);
    option(CURLOPT_HEADERFUNCTION, &bare_consul::on_header);
    option(CURLOPT_HEADERDATA, &index_);
  }
  bare_consul(const bare_consul&) = delete;
  bare_consul& operator=(const bare_consul&) = delete;

  const std::string& put(const std::string& path, const std::string& content = {}) {
    option(CURLOPT_POSTFIELDS, content.c_str());
    option(CURLOPT_POSTFIELDSIZE, static_cast<long>(content.size()));
    option(CURLOPT_CUSTOMREQUEST, "PUT");
    return ask(path);
  }
  const std::string& get(const std::string& path) {
    option(CURLOPT_HTTPGET, 1L);
    option(CURLOPT_CUSTOMREQUEST, static_cast<const char*>(nullptr));
    return ask(path);
  }
  std::uint64_t index() const noexcept { return index_; }

  std::string make_session() {
    std::string said;
    // A young agent has not registered its own health yet, on which sessions depend.
    wait_until([&] {
      said = put("/v1/session/create", R"({"TTL":"600s","LockDelay":"0s"})");
      return said.starts_with("{");
    });
    const auto begin = said.find('"', said.find(':')) + 1;
    return said.substr(begin, said.find('"', begin) - begin);
  }

 private:
  template <class Value>
  void option(CURLoption which, Value value) {
    if (curl_easy_setopt(handle_.get(), which, value) != CURLE_OK)
      throw std::runtime_error("libcurl refuses an option.");
  }
  const std::string& ask(const std::string& path) {
    body_.clear();
    index_ = 0;
    option(CURLOPT_URL, fmt::format("http://127.0.0.1:{}{}", port_, path).c_str());
    if (const auto code = curl_easy_perform(handle_.get()); code != CURLE_OK)
      throw std::runtime_error(curl_easy_strerror(code));
    return body_;
  }
  static std::size_t on_body(char* bytes, std::size_t, std::size_t count, void* to) {
    static_cast<std::string*>(to)->append(bytes, count);
    return count;
  }
  static std::size_t on_header(char* bytes, std::size_t, std::size_t count, void* to) {
    constexpr std::string_view name = "X-Consul-Index: ";
    const std::string_view line{bytes, count};
    if (line.starts_with(name))
      std::from_chars(bytes + name.size(), bytes + count, *static_cast<std::uint64_t*>(to));
    return count;
  }

  struct free_handle {
    void operator()(CURL* handle) const noexcept { curl_easy_cleanup(handle); }
  };
  const std::uint16_t port_;
  std::unique_ptr<CURL, free_handle> handle_{curl_easy_init()};
  std::string body_;
  std::uint64_t index_ = 0;
};

// What `acquire` and `release` of a key cost at least: two requests.
inline void bare_pair(bare_consul& with, const std::string& key, const std::string& session) {
  const auto path = "/v1/kv/" + key;
  if (!with.put(path + "?acquire=" + session).starts_with("true"))
    throw std::runtime_error("Another session has " + key + ".");
  with.put(path + "?release=" + session);
}

// api.Lock: look, and wait for a change while it is taken; try; look again.
class recipe_lock {
 public:
  recipe_lock(std::uint16_t port, std::string key)
      : with_(port), path_("/v1/kv/" + std::move(key)), session_(with_.make_session()) {}
  void lock() {
    for (std::uint64_t index = 0;;) {
      const bool is_taken =
          with_.get(fmt::format("{}?wait=15s&index={}", path_, index)).find("\"Session\"") !=
          std::string::npos;
      index = with_.index();
      if (is_taken) continue;
      if (with_.put(path_ + "?acquire=" + session_).starts_with("true")) return;
      index = 0;
    }
  }
  void unlock() { with_.put(path_ + "?release=" + session_); }

 private:
  bare_consul with_;
  const std::string path_, session_;
};

}  // namespace baseline
