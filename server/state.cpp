#include "state.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/rand.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>
#include <optional>
#include <sstream>
#include <utility>

namespace holdfast::server {

namespace {

using mac = std::array<unsigned char, 32>;

using keyed_mac = std::unique_ptr<EVP_MAC_CTX, void (*)(EVP_MAC_CTX*)>;

// To take the key in costs more than to hash a lease, so it is done once. Empty: there is no memory.
keyed_mac keyed_with(const std::array<unsigned char, 32>& secret) {
  const std::unique_ptr<EVP_MAC, void (*)(EVP_MAC*)> kind{EVP_MAC_fetch(nullptr, "HMAC", nullptr),
                                                          &EVP_MAC_free};
  keyed_mac out{kind == nullptr ? nullptr : EVP_MAC_CTX_new(kind.get()), &EVP_MAC_CTX_free};
  std::string digest = "SHA256";
  const std::array<OSSL_PARAM, 2> how{
      OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest.data(), 0),
      OSSL_PARAM_construct_end()};
  if (out != nullptr && EVP_MAC_init(out.get(), secret.data(), secret.size(), how.data()) != 1)
    out.reset();
  return out;
}

mac hmac(EVP_MAC_CTX* keyed, std::string_view text) {
  mac out{};
  std::size_t length = 0;
  const bool good = EVP_MAC_init(keyed, nullptr, 0, nullptr) == 1 &&
                    EVP_MAC_update(keyed, reinterpret_cast<const unsigned char*>(text.data()),
                                   text.size()) == 1 &&
                    EVP_MAC_final(keyed, out.data(), &length, out.size()) == 1 &&
                    length == out.size();
  // Without it ids could be guessed.
  if (!good) throw std::bad_alloc{};
  return out;
}

std::string first_128_bits(const mac& of) {
  std::string out;
  for (std::size_t i = 0; i < 16; ++i) fmt::format_to(std::back_inserter(out), "{:02x}", of[i]);
  return out;
}

// systemd names one (StateDirectory=); else as the XDG rules say.
std::string default_folder() {
  const auto variable = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  if (auto given = variable("STATE_DIRECTORY"); !given.empty())
    return given.substr(0, given.find(':'));
  if (const auto base = variable("XDG_STATE_HOME"); !base.empty()) return base + "/holdfast/serve";
  if (const auto home = variable("HOME"); !home.empty())
    return home + "/.local/state/holdfast/serve";
  return fmt::format("/var/tmp/holdfast-serve-{}", geteuid());
}

error bad_folder(const std::string& path, std::string_view why) {
  return {errc::misconfigured, fmt::format("the folder {} cannot keep the state: {}", path, why)};
}

// Empty when there is none. Nothing: it cannot be read, and errno says why.
std::optional<std::string> whole_file(int folder, const char* name) {
  const int file = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) return errno == ENOENT ? std::optional<std::string>{""} : std::nullopt;
  std::string out;
  std::array<char, 65536> some{};
  ssize_t count = 0;
  while ((count = read(file, some.data(), some.size())) > 0)
    out.append(some.data(), static_cast<std::size_t>(count));
  const int failed = count < 0 ? errno : 0;
  close(file);
  errno = failed;
  return failed == 0 ? std::optional{std::move(out)} : std::nullopt;
}

bool write_whole(int file, std::string_view text) {
  while (!text.empty()) {
    const auto count = write(file, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

std::string line_of(const journal_entry& one) {
  auto out = fmt::format("{} {}", one.request, one.question);
  for (const auto sequence : one.sequences)
    fmt::format_to(std::back_inserter(out), " {:x}", sequence);
  return out += '\n';
}

}  // namespace

result<state_folder> state_folder::open(std::string path) {
  state_folder out;
  out.path_ = path.empty() ? default_folder() : std::move(path);
  std::error_code ignored;
  const auto parent = std::filesystem::path{out.path_}.parent_path();
  if (!parent.empty()) std::filesystem::create_directories(parent, ignored);
  mkdir(out.path_.c_str(), 0700);
  out.folder_ = ::open(out.path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  if (out.folder_ < 0) return bad_folder(out.path_, std::strerror(errno));
  struct stat about {};
  if (fstat(out.folder_, &about) != 0 || about.st_uid != geteuid() || (about.st_mode & 077) != 0)
    return bad_folder(out.path_, "it must belong to this user and be closed to others (chmod 700)");
  if (flock(out.folder_, LOCK_EX | LOCK_NB) != 0)
    return bad_folder(out.path_,
                      "another holdfast serve has it; give each one of its own with --state");
  if (auto ok = out.read_secret(); !ok) return std::move(ok).error();
  out.keyed_ = keyed_with(out.secret_);
  if (out.keyed_ == nullptr) return bad_folder(out.path_, "OpenSSL has no HMAC");
  out.read_journal();
  return out;
}

state_folder::state_folder() : keyed_(nullptr, &EVP_MAC_CTX_free) {}

state_folder::state_folder(state_folder&& other) noexcept
    : path_(std::move(other.path_)),
      folder_(std::exchange(other.folder_, -1)),
      log_(std::exchange(other.log_, -1)),
      secret_(other.secret_),
      keyed_(std::move(other.keyed_)),
      journal_(std::move(other.journal_)),
      noted_(other.noted_) {}

state_folder::~state_folder() {
  if (log_ >= 0) close(log_);
  if (folder_ >= 0) close(folder_);
}

// Written beside its place and moved there, so that a crash leaves a whole secret or none.
result<void> state_folder::read_secret() {
  const auto text = whole_file(folder_, "secret");
  if (!text) return bad_folder(path_, std::strerror(errno));
  if (text->empty()) {
    if (RAND_bytes(secret_.data(), static_cast<int>(secret_.size())) != 1)
      return bad_folder(path_, "the system's random source gave no secret");
    const int file =
        openat(folder_, "secret.new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    const bool good =
        file >= 0 && write_whole(file, {reinterpret_cast<char*>(secret_.data()), secret_.size()}) &&
        fsync(file) == 0 && renameat(folder_, "secret.new", folder_, "secret") == 0 &&
        fsync(folder_) == 0;
    const auto why = std::string{std::strerror(errno)};
    if (file >= 0) close(file);
    return good ? result<void>{} : bad_folder(path_, why);
  }
  if (text->size() != secret_.size()) return bad_folder(path_, "its secret is damaged; remove it");
  std::memcpy(secret_.data(), text->data(), secret_.size());
  return {};
}

// The last line may be half written.
void state_folder::read_journal() {
  std::istringstream lines{whole_file(folder_, "requests").value_or("")};
  for (std::string line; std::getline(lines, line) && !lines.eof();) {
    std::istringstream words{line};
    journal_entry one;
    words >> one.request >> one.question;
    for (std::string word; words >> word;) {
      std::uint64_t value = 0;
      std::from_chars(word.data(), word.data() + word.size(), value, 16);
      one.sequences.push_back(value);
    }
    if (one.request.size() == 32 && one.question.size() == 32 && !one.sequences.empty())
      journal_.push_back(std::move(one));
  }
}

std::array<std::uint64_t, 2> state_folder::client() const {
  const auto all = hmac(keyed_.get(), "client");
  std::array<std::uint64_t, 2> out{};
  std::memcpy(out.data(), all.data(), sizeof out);
  return out;
}

std::string state_folder::lease_id(const owner_id& owner, std::string_view key_name) const {
  return first_128_bits(hmac(keyed_.get(), fmt::format("lease {:x} {:x} {:x} {}", owner.client[0],
                                                       owner.client[1], owner.sequence, key_name)));
}

std::string state_folder::hash(std::string_view what, std::string_view text) const {
  return first_128_bits(hmac(keyed_.get(), fmt::format("{} {}", what, text)));
}

// No fsync: it must outlive this process, not the machine, with which the embedded store's grants end, too.
void state_folder::note(const journal_entry& one) {
  if (log_ < 0)
    log_ =
        openat(folder_, "requests", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (log_ >= 0) write_whole(log_, line_of(one));
  ++noted_;
}

void state_folder::keep(std::vector<journal_entry> entries) {
  journal_ = std::move(entries);
  noted_ = 0;
  std::string text;
  for (const auto& each : journal_) text += line_of(each);
  const int file =
      openat(folder_, "requests.new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return;
  if (write_whole(file, text) && renameat(folder_, "requests.new", folder_, "requests") == 0 &&
      log_ >= 0) {
    close(log_);
    log_ = -1;
  }
  close(file);
}

}  // namespace holdfast::server
