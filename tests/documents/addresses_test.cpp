// docs/reference/urls.md against the engines, which list their options when they refuse one.
#include "documents/command.hpp"
#include "documents/page.hpp"

#include <gtest/gtest.h>

#include <map>

namespace documents {

namespace {

const char* const urls_page = "docs/reference/urls.md";

using options_by_scheme = std::map<std::string, std::set<std::string>>;

options_by_scheme documented_options() {
  options_by_scheme out;
  for (const auto& row : read_page(urls_page).table_under("Options").rows)
    for (const auto& scheme : code_spans(row.at(0)))
      for (const auto& option : code_spans(row.at(1))) out[scheme].insert(option);
  return out;
}

// An address that every engine finds well-formed.
std::string address_with(const std::string& scheme, const std::string& option) {
  const bool is_local = scheme == "file" || scheme == "memory" || scheme == "unix";
  return scheme + (is_local ? ":/there" : "://there/db") + '?' + option;
}

said asked(const std::string& scheme, const std::string& option) {
  workplace here;
  return here.run("holdfast explain --store '" + address_with(scheme, option) + "'");
}

std::set<std::string> accepted_options(const std::string& scheme) {
  const auto refusal = asked(scheme, "no_such_option=1");
  EXPECT_EQ(refusal.code, 78) << refusal.text;
  const auto list = refusal.text.find("; it has ");
  if (list != std::string::npos) return found_in(refusal.text.substr(list + 9), "[a-z_]+");
  EXPECT_NE(refusal.text.find("takes no options"), std::string::npos) << refusal.text;
  return {};
}

}  // namespace

TEST(addresses, every_scheme_is_in_the_table_of_stores) {
  const auto stores = read_page(urls_page).tables.at(0);
  std::set<std::string> named;
  for (const auto& row : stores.rows)
    for (const auto& url : code_spans(row.at(0)))
      named.merge(found_in(url, "^[a-z]+(?:\\+[a-z]+)?"));
  for (const auto& scheme : schemes_of_this_build()) EXPECT_TRUE(named.contains(scheme)) << scheme;
}

// Those for TLS are known to the scheme without TLS, too, in order to say what is wrong with them.
TEST(addresses, options_are_those_that_the_engines_accept) {
  const std::set<std::string> for_tls{"ca_file", "cert_file", "key_file", "server_name"};
  auto documented = documented_options();
  for (const auto& scheme : schemes_of_this_build()) {
    SCOPED_TRACE(scheme);
    auto accepted = accepted_options(scheme);
    for (const auto& option : for_tls)
      if (!documented[scheme].contains(option)) accepted.erase(option);
    EXPECT_EQ(documented[scheme], accepted);
  }
}

TEST(addresses, options_for_tls_are_refused_without_it) {
  const auto documented = documented_options();
  const auto built = schemes_of_this_build();
  for (const auto& [scheme, options] : documented) {
    const auto with_tls = documented.find(scheme + 's');
    if (with_tls == documented.end() || !built.contains(scheme)) continue;
    for (const auto& option : with_tls->second) {
      if (options.contains(option)) continue;
      const auto refusal = asked(scheme, option + "=x");
      EXPECT_EQ(refusal.code, 78) << scheme << ' ' << option << ": " << refusal.text;
    }
  }
}

}  // namespace documents
