// One HTTP request over libcurl, and what is the same for all requests of an agent. Who drives it (a thread of its own
// or the agent's loop) is not known here; nothing here blocks.
//
// A request counts as sent from the moment at which libcurl has a connection for it (CURLOPT_PREREQFUNCTION, libcurl
// 7.80): before, it was certainly not executed; afterwards it may have been. libcurl asks once more when it sends the
// same request over another connection because a kept one turned out to be dead.
#pragma once

#include "engines/consul/agent.hpp"

#include <curl/curl.h>

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::engines::consul {

// Thread-safe: it does not change.
class http_setup {
 public:
  explicit http_setup(const settings& how);
  const settings& how() const noexcept { return how_; }
  // For sentences: which agent it was.
  const std::string& name(std::size_t member) const noexcept { return places_[member].name; }

 private:
  friend class http_transfer;
  struct free_list {
    void operator()(curl_slist* list) const noexcept { curl_slist_free_all(list); }
  };
  using list = std::unique_ptr<curl_slist, free_list>;
  struct place {
    std::string name;
    std::string origin;  // "https://host:port"
    list connect_to{};   // where that is in truth, if the certificate has another name
  };
  static void append(list& to, const std::string& line);
  place read_place(std::size_t which) const;

  const settings& how_;
  std::string datacenter_;  // "dc=..."
  list put_headers_, get_headers_;
  std::vector<place> places_;
};

// Why a request ends before libcurl says so.
enum class cut : std::uint8_t { out_of_time, stopped, closing };

class http_transfer {
 public:
  explicit http_transfer(const http_setup& with);
  http_transfer(const http_transfer&) = delete;
  http_transfer& operator=(const http_transfer&) = delete;
  CURL* handle() const noexcept { return handle_.get(); }

  // A new request; `what` stays as it is until it has ended.
  result<void> prepare(std::size_t member, const question& what);
  // How often it may have been sent; 0: certainly not executed.
  unsigned sends() const noexcept { return sends_; }
  // What it has come to when libcurl was through with it, or was cut short.
  result<http_reply> finish(CURLcode how);
  error give_up(cut why) const;

 private:
  struct free_handle {
    void operator()(CURL* handle) const noexcept { curl_easy_cleanup(handle); }
  };
  enum class trouble : std::uint8_t { none, too_large, no_memory };

  template <class Value>
  void set(CURLoption option, Value value) {
    if (const auto code = curl_easy_setopt(handle_.get(), option, value); code != CURLE_OK)
      refused_ = code;
  }
  void set_what_stays();
  void set_member(std::size_t member);
  void set_tls(const tls_files& files);
  error unsent(CURLcode how) const;
  error unanswered(CURLcode how) const;
  std::string words(CURLcode how) const;
  const std::string& server() const noexcept { return with_.name(member_); }

  static int on_connection(void* self, char*, char*, int, int) noexcept;
  static std::size_t on_header(char* bytes, std::size_t, std::size_t count, void* self) noexcept;
  static std::size_t on_body(char* bytes, std::size_t, std::size_t count, void* self) noexcept;

  const http_setup& with_;
  std::unique_ptr<CURL, free_handle> handle_;
  static constexpr std::size_t no_member = static_cast<std::size_t>(-1);
  std::size_t member_ = no_member;
  CURLcode refused_ = CURLE_OK;  // an option that libcurl did not take
  std::string url_;
  std::array<char, CURL_ERROR_SIZE> said_{};
  unsigned sends_ = 0;
  trouble trouble_ = trouble::none;
  std::size_t header_bytes_ = 0;
  http_reply reply_{};
};

// For no use of libcurl before this.
void start_libcurl();

error client_is_closing(const settings& how);
error no_time_to_ask(const settings& how);

}  // namespace holdfast::engines::consul
