#include "support/zookeeper_peers.hpp"

#include "support/made_once.hpp"
#include "support/process.hpp"
#include "support/temp_dir.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <functional>
#include <stdexcept>
#include <string_view>

namespace holdfast::testing {

namespace {

constexpr auto curator_jar =
    "/usr/share/java/curator-recipes.jar";  // it names the jars that it needs
constexpr auto silent_log_jar = "/usr/share/java/slf4j-nop.jar";
const std::string peers = HOLDFAST_TEST_PEERS;

// Starting the source itself (java CuratorPeer.java) takes 1.3 s each time, against 0.25 s for what was compiled.
std::string compiled_curator_peer() {
  const auto source = peers + "/CuratorPeer.java";
  const auto name =
      fmt::format("curator-peer-{:016x}", std::hash<std::string>{}(text_of_file(source)));
  return made_once(name, [&](const std::filesystem::path& unfinished) {
    const auto log = unfinished.string() + ".log";
    process compiler{
        {*find_program("javac"), "-cp", curator_jar, "-d", unfinished.string(), source}, log};
    if (compiler.wait(std::chrono::minutes{1}) != 0)
      throw std::runtime_error("javac failed on CuratorPeer.java; it says:\n" + text_of_file(log));
  });
}

std::vector<std::string> curator_command(const std::string& store,
                                         std::chrono::milliseconds session_timeout) {
  if (const auto there = curator_available(); !there) throw std::runtime_error(there.why);
  return {*find_program("java"),
          "-Xmx64m",
          "-XX:+UseSerialGC",
          "-XX:TieredStopAtLevel=1",
          "-cp",
          fmt::format("{}:{}:{}", compiled_curator_peer(), curator_jar, silent_log_jar),
          "CuratorPeer",
          store,
          std::to_string(session_timeout.count())};
}

// The first Python of the PATH may be one that does not have Debian's packages.
std::string find_python_with_kazoo() {
  const temp_dir scratch;
  for (const auto& python :
       {find_program("python3").value_or(""), std::string{"/usr/bin/python3"}}) {
    if (::access(python.c_str(), X_OK) != 0) continue;
    process probe{{python, "-c", "import kazoo.client"}, scratch.file("log")};
    if (probe.wait() == 0) return python;
  }
  return "";
}

const std::string& python_with_kazoo() {
  static const std::string found = find_python_with_kazoo();
  return found;
}

std::string connect_string_of(const std::string& store) {
  constexpr std::string_view scheme = "zk://";
  return store.starts_with(scheme) ? store.substr(scheme.size()) : store;
}

void await_session(line_program& peer, const std::string& what, const std::string& store) {
  peer.tell("session");
  const auto answer = peer.hear(std::chrono::seconds{30}).value_or("nothing");
  if (!answer.starts_with("session "))
    throw std::runtime_error(
        fmt::format("{} got no session at {}; it says: {}", what, store, answer));
}

}  // namespace

availability curator_available() {
  for (const auto* program : {"java", "javac"})
    if (!find_program(program))
      return {false, fmt::format("{} is not in the PATH; tools/setup test installs it", program)};
  if (::access(curator_jar, R_OK) != 0)
    return {false, fmt::format("{} is not there; tools/setup test installs it", curator_jar)};
  return {true, {}};
}

availability kazoo_available() {
  if (python_with_kazoo().empty())
    return {false, "No Python has kazoo; tools/setup test installs it"};
  return {true, {}};
}

curator_peer::curator_peer(const std::string& store, std::chrono::milliseconds session_timeout)
    : line_program(curator_command(connect_string_of(store), session_timeout)) {
  await_session(*this, "Curator", store);
}

kazoo_peer::kazoo_peer(const std::string& store, std::chrono::milliseconds session_timeout)
    : line_program({python_with_kazoo(), peers + "/kazoo_peer.py", connect_string_of(store),
                    std::to_string(session_timeout.count())}) {
  await_session(*this, "kazoo", store);
}

}  // namespace holdfast::testing
