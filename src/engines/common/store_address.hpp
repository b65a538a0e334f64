// What addresses of stores say alike, with the same option names and the same sentences on every store: TLS, and the
// login.
//
//   password_file= password_env=                  where the password is
//   ca_file= cert_file= key_file= server_name=    TLS: whom to trust, who we are, whom we expect
#pragma once

#include <holdfast/result.hpp>
#include <holdfast/url.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::engines {

// misconfigured: "The store address URL <what>".
error bad_address(const store_url& url, std::string_view what);
// The same for an address whose hosts are not what the store needs; says it when only the // is missing.
error bad_hosts(const store_url& url, std::string_view what);
// The value of ?key=, or the fallback.
std::string text_option(const store_url& url, std::string_view key, std::string_view fallback = {});

bool is_this_machine(std::string_view host);

struct tls_files {
  std::string ca_file, cert_file, key_file;
  std::string server_name;  // the host unless given
};
// misconfigured when there are such options although TLS is off; `how_to_turn_on` ends that sentence.
result<tls_files> read_tls_files(const store_url& url, bool use_tls, std::string_view host,
                                 std::string_view how_to_turn_on);
bool has_tls_options(const store_url& url);

// The servers of a cluster that the address names.
struct member_address {
  std::string host;
  std::uint16_t port = 0;
  std::string name;  // for sentences: "127.0.0.1:2379"
  tls_files tls;
};
// `example` ends the sentence about an address without any; `how_to_turn_on` as above.
result<std::vector<member_address>> read_members(const store_url& url, bool use_tls,
                                                 std::uint16_t usual_port, std::string_view example,
                                                 std::string_view how_to_turn_on);

struct login {
  std::string user, password;
};
// misconfigured for a user without a password, unless the store knows such users.
result<login> read_login(const store_url& url, bool may_lack_password = false);

}  // namespace holdfast::engines
