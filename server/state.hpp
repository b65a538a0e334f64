// What a service keeps for its successor, in a folder of its own (0700): a secret of 32 bytes, and which request got
// which grant. One process at a time has it.
#pragma once

#include <holdfast/result.hpp>
#include <holdfast/types.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

struct evp_mac_ctx_st;  // OpenSSL's

namespace holdfast::server {

// A request_id that was answered with a grant: hashes, so that nothing of it can be read here.
struct journal_entry {
  std::string request;                   // of key and request_id, hexadecimal
  std::string question;                  // of what was asked
  std::vector<std::uint64_t> sequences;  // of the owners
};

class state_folder {
 public:
  // Makes it when it is not there; empty: that of this user. misconfigured when it is another user's, or open to
  // others, or another process has it.
  static result<state_folder> open(std::string path);
  state_folder(state_folder&& other) noexcept;
  state_folder& operator=(state_folder&&) = delete;
  ~state_folder();

  // The client half of all owner ids of this folder's services.
  std::array<std::uint64_t, 2> client() const;
  // 32 hexadecimal digits that nobody can guess; the same for the same grant and key in every later service.
  std::string lease_id(const owner_id& owner, std::string_view key_name) const;
  // Of a request_id, or of a question: equal texts have equal hashes, and nobody else can tell which text it was.
  std::string hash(std::string_view what, std::string_view text) const;

  const std::vector<journal_entry>& journal() const noexcept { return journal_; }
  void note(const journal_entry& one);
  // Forgets all entries but these.
  void keep(std::vector<journal_entry> entries);
  // How many were noted since it was written anew.
  std::size_t noted() const noexcept { return noted_; }
  const std::string& path() const noexcept { return path_; }

 private:
  state_folder();
  result<void> read_secret();
  void read_journal();

  std::string path_;
  int folder_ = -1;  // held, and locked
  int log_ = -1;
  std::array<unsigned char, 32> secret_{};
  std::unique_ptr<evp_mac_ctx_st, void (*)(evp_mac_ctx_st*)> keyed_;  // with the secret
  std::vector<journal_entry> journal_;
  std::size_t noted_ = 0;
};

}  // namespace holdfast::server
