// The OpenAPI document of `holdfast serve` against its real answers; peers/openapi_check.py does the asking.
#include "e2e/serve_cli.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>

namespace {

using holdfast::testing::peer_program;

class serve_openapi : public e2e::serve_cli {
 protected:
  void SetUp() override {
    serve_cli::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    for (const auto* each : {"python3", "/usr/bin/python3"})
      if (box.shell(fmt::format("{} -c 'import jsonschema'", each)).code == 0) {
        python_ = each;
        return;
      }
    need(
        holdfast::testing::availability{
            false, "no python3 has jsonschema; install the package python3-jsonschema"},
        "http");
  }
  // Its outcome; its words are the check's, behind the address.
  e2e::outcome check(const std::string& words) {
    return box
        .start_shell(fmt::format("exec {} '{}' {} {}", python_, peer_program("openapi_check.py"),
                                 running().url(), words))
        ->wait(std::chrono::seconds{100});
  }
  // The secret, and the line for the service.
  std::pair<std::string, std::string> key(const std::string& words) {
    const auto made =
        box.shell(fmt::format("holdfast serve --new-key {} > made && sed -n '2s/^#   //p' made && "
                              "grep -v '^#' made",
                              words));
    const auto end = made.out.find('\n');
    return {made.out.substr(0, end), made.out.substr(end + 1, made.out.size() - end - 2)};
  }

 private:
  std::string python_;
};

TEST_F(serve_openapi, the_document_says_what_is_answered_and_names_every_route) {
  start({.config = {"request-time = 3s", "leases-per-key = 60"}});
  const auto server = std::filesystem::path{peer_program("")} / "../../../server";
  const auto said = check(fmt::format("--sources '{}' --leases 60 --pid {}",
                                      server.lexically_normal().string(), running().pid()));
  EXPECT_EQ(said.code, 0) << said.out << said.err;
  EXPECT_EQ(running().wait(), 0) << running().log();
}

TEST_F(serve_openapi, with_keys_it_says_who_may_do_what) {
  const auto [all, all_line] = key("all --scopes acquire,inspect,break --names '*'");
  const auto [narrow, narrow_line] = key("narrow --scopes acquire --names 'narrow/*'");
  start({.config = {"request-time = 3s"}, .keys = {all_line, narrow_line}});
  const auto said = check(fmt::format("--key {} --narrow-key {}", all, narrow));
  EXPECT_EQ(said.code, 0) << said.out << said.err;
}

}  // namespace
