#include "engines/consul/http_transfer.hpp"

#include "support/text.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <mutex>
#include <new>

namespace holdfast::engines::consul {

namespace {

constexpr std::size_t largest_body = std::size_t{64} << 20U;
constexpr std::size_t largest_header = std::size_t{128}
                                       << 10U;  // of all lines together; libcurl takes 300 KiB
constexpr long connect_timeout_ms = 2000;
// A server that vanished without a word is noticed after about this long, also by a blocking query, which sends
// nothing.
constexpr long silence_s = 10;
constexpr std::size_t longest_words = 200;

std::string in_brackets(const std::string& host) {
  return host.find(':') == std::string::npos ? host : fmt::format("[{}]", host);
}

// As libcurl does it, but children that execute something else do not get the connection: it would stay open with them.
curl_socket_t open_transfer_socket(void*, curlsocktype, curl_sockaddr* where) noexcept {
  const int fd = ::socket(where->family, where->socktype | SOCK_CLOEXEC, where->protocol);
  if (fd < 0) return CURL_SOCKET_BAD;
  const unsigned unanswered_for = silence_s * 1000;  // ms
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered_for, sizeof unanswered_for);
  return fd;
}

bool is_index_header(std::string_view line) {
  constexpr std::string_view name = "x-consul-index:";
  return line.size() > name.size() &&
         std::equal(name.begin(), name.end(), line.begin(), [](char a, char b) {
           return a == std::tolower(static_cast<unsigned char>(b));
         });
}

// 0 for what is no number.
std::uint64_t read_index_header(std::string_view line) {
  constexpr std::string_view blanks = " \t\r\n";
  line.remove_prefix(line.find(':') + 1);
  line.remove_prefix(std::min(line.find_first_not_of(blanks), line.size()));
  line.remove_suffix(line.size() - std::min(line.find_last_not_of(blanks) + 1, line.size()));
  std::uint64_t index = 0;
  const auto [end, failure] = std::from_chars(line.data(), line.data() + line.size(), index);
  return failure == std::errc{} && end == line.data() + line.size() ? index : 0;
}

bool is_about_certificates(CURLcode how) {
  switch (how) {
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_INVALIDCERTSTATUS:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
      return true;
    default:
      return false;
  }
}

bool is_nonsense(CURLcode how) {
  return how == CURLE_UNSUPPORTED_PROTOCOL || how == CURLE_WEIRD_SERVER_REPLY ||
         how == CURLE_BAD_CONTENT_ENCODING;
}

}  // namespace

void start_libcurl() {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
}

error client_is_closing(const settings& how) {
  return not_done{errc::unavailable, fmt::format("{}: the client is being closed.", how.url)};
}

error no_time_to_ask(const settings& how) {
  return not_done{errc::unavailable, fmt::format("{}: there was no time left to ask.", how.url)};
}

// ---- what is the same for all

http_setup::http_setup(const settings& how) : how_(how) {
  if (!how.datacenter.empty()) datacenter_ = "dc=" + support::percent_encode(how.datacenter, {});
  if (!how.token.empty()) {
    append(put_headers_, "X-Consul-Token: " + how.token);
    append(get_headers_, "X-Consul-Token: " + how.token);
  }
  append(put_headers_, "Content-Type: application/json");
  append(put_headers_, "Expect:");  // to wait for a permission to go on would cost a round trip
  for (std::size_t i = 0; i < how.where.size(); ++i) places_.push_back(read_place(i));
}

void http_setup::append(list& to, const std::string& line) {
  auto* const longer = curl_slist_append(to.get(), line.c_str());
  if (longer == nullptr) throw std::bad_alloc{};
  static_cast<void>(to.release());
  to.reset(longer);
}

http_setup::place http_setup::read_place(std::size_t which) const {
  const auto& where = how_.where[which];
  place out;
  out.name = how_.where.size() == 1 ? how_.url : fmt::format("{} at {}", how_.url, where.name);
  const auto& expected = where.tls.server_name;
  const bool renamed = how_.use_tls && !expected.empty() && expected != where.host;
  out.origin = fmt::format("{}://{}:{}", how_.use_tls ? "https" : "http",
                           in_brackets(renamed ? expected : where.host), where.port);
  if (renamed) append(out.connect_to, fmt::format("::{}:{}", in_brackets(where.host), where.port));
  return out;
}

// ---- one request

http_transfer::http_transfer(const http_setup& with) : with_(with), handle_(curl_easy_init()) {
  if (!handle_) throw std::bad_alloc{};
  set_what_stays();
}

void http_transfer::set_what_stays() {
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_ERRORBUFFER, said_.data());
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(CURLOPT_PROXY, "");
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_PATH_AS_IS, 1L);  // a key with dots is another key without them
#if LIBCURL_VERSION_NUM >= 0x075500
  set(CURLOPT_PROTOCOLS_STR, with_.how().use_tls ? "https" : "http");
#else
  set(CURLOPT_PROTOCOLS, static_cast<long>(with_.how().use_tls ? CURLPROTO_HTTPS : CURLPROTO_HTTP));
#endif
#if LIBCURL_VERSION_NUM >= 0x075700
  set(CURLOPT_QUICK_EXIT, 1L);  // who gives up does not wait for a name server
#endif
  set(CURLOPT_CONNECTTIMEOUT_MS, connect_timeout_ms);
  set(CURLOPT_TCP_NODELAY, 1L);
  set(CURLOPT_TCP_KEEPALIVE, 1L);
  set(CURLOPT_TCP_KEEPIDLE, silence_s / 2);
  set(CURLOPT_TCP_KEEPINTVL, silence_s / 4);
  set(CURLOPT_OPENSOCKETFUNCTION, &open_transfer_socket);
  set(CURLOPT_PREREQFUNCTION, &http_transfer::on_connection);
  set(CURLOPT_PREREQDATA, this);
  set(CURLOPT_HEADERFUNCTION, &http_transfer::on_header);
  set(CURLOPT_HEADERDATA, this);
  set(CURLOPT_WRITEFUNCTION, &http_transfer::on_body);
  set(CURLOPT_WRITEDATA, this);
}

void http_transfer::set_member(std::size_t member) {
  const auto& to = with_.places_[member];
  set(CURLOPT_CONNECT_TO, to.connect_to.get());
  if (with_.how().use_tls) set_tls(with_.how().where[member].tls);
}

void http_transfer::set_tls(const tls_files& files) {
  set(CURLOPT_SSL_VERIFYPEER, 1L);
  set(CURLOPT_SSL_VERIFYHOST, 2L);
  set(CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
  if (!files.ca_file.empty()) {
    set(CURLOPT_CAINFO, files.ca_file.c_str());
    set(CURLOPT_CAPATH, static_cast<const char*>(nullptr));  // these, and not the system's as well
#if LIBCURL_VERSION_NUM >= 0x075700
    set(CURLOPT_CA_CACHE_TIMEOUT, 0L);  // renewed ones are seen without a restart
#endif
  }
  if (files.cert_file.empty()) return;
  set(CURLOPT_SSLCERT, files.cert_file.c_str());
  set(CURLOPT_SSLKEY, (files.key_file.empty() ? files.cert_file : files.key_file).c_str());
  set(CURLOPT_KEYPASSWD, "");  // else OpenSSL would ask at the terminal
}

result<void> http_transfer::prepare(std::size_t member, const question& what) {
  sends_ = 0;
  trouble_ = trouble::none;
  header_bytes_ = 0;
  reply_ = {};
  said_[0] = '\0';
  if (std::exchange(member_, member) != member) set_member(member);
  url_.assign(with_.places_[member].origin).append(what.path);
  if (!with_.datacenter_.empty()) {
    url_.push_back(what.path.find('?') == std::string::npos ? '?' : '&');
    url_.append(with_.datacenter_);
  }
  set(CURLOPT_URL, url_.c_str());
  if (what.how == question::verb::put) {
    set(CURLOPT_POSTFIELDS, what.body.c_str());
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(what.body.size()));
    set(CURLOPT_CUSTOMREQUEST, "PUT");
    set(CURLOPT_HTTPHEADER, with_.put_headers_.get());
  } else {
    set(CURLOPT_HTTPGET, 1L);
    set(CURLOPT_CUSTOMREQUEST, static_cast<const char*>(nullptr));
    set(CURLOPT_HTTPHEADER, with_.get_headers_.get());
  }
  if (refused_ == CURLE_OK) return {};
  return not_done{errc::misconfigured, fmt::format("{}: libcurl cannot do what is needed: {}.",
                                                   server(), curl_easy_strerror(refused_))};
}

int http_transfer::on_connection(void* self, char*, char*, int, int) noexcept {
  ++static_cast<http_transfer*>(self)->sends_;
  return CURL_PREREQFUNC_OK;
}

std::size_t http_transfer::on_header(char* bytes, std::size_t, std::size_t count,
                                     void* self) noexcept {
  auto& in = *static_cast<http_transfer*>(self);
  in.header_bytes_ += count;
  if (in.header_bytes_ > largest_header) {
    in.trouble_ = trouble::too_large;
    return 0;
  }
  const std::string_view line{bytes, count};
  if (is_index_header(line)) in.reply_.index = read_index_header(line);
  return count;
}

// What the server announced is not believed: memory is taken for what has come.
std::size_t http_transfer::on_body(char* bytes, std::size_t, std::size_t count,
                                   void* self) noexcept {
  auto& in = *static_cast<http_transfer*>(self);
  auto& body = in.reply_.body;
  if (count > largest_body - body.size()) {
    in.trouble_ = trouble::too_large;
    return 0;
  }
  try {
    body.append(bytes, count);
  } catch (const std::bad_alloc&) {
    in.trouble_ = trouble::no_memory;
    return 0;
  }
  return count;
}

// ---- what it has come to

result<http_reply> http_transfer::finish(CURLcode how) {
  if (how != CURLE_OK) {
    reply_ = {};
    return sends_ == 0 ? unsent(how) : unanswered(how);
  }
  long status = 0;
  curl_easy_getinfo(handle_.get(), CURLINFO_RESPONSE_CODE, &status);
  reply_.status = static_cast<int>(status);
  return std::move(reply_);
}

error http_transfer::unsent(CURLcode how) const {
  if (how == CURLE_PEER_FAILED_VERIFICATION)
    return not_done{errc::misconfigured,
                    fmt::format("{} cannot be reached: the server's certificate was refused: {}.",
                                server(), words(how))};
  const bool stays = is_about_certificates(how) || how == CURLE_URL_MALFORMAT ||
                     how == CURLE_UNSUPPORTED_PROTOCOL || how == CURLE_NOT_BUILT_IN;
  const auto* const advice =
      how == CURLE_SSL_CONNECT_ERROR ? " (does it speak TLS on this port?)" : "";
  return not_done{stays ? errc::misconfigured : errc::unavailable,
                  fmt::format("{} cannot be reached: {}{}.", server(), words(how), advice)};
}

error http_transfer::unanswered(CURLcode how) const {
  if (trouble_ == trouble::too_large)
    return {errc::protocol,
            fmt::format("{}: the answer is too large; it was not read further.", server())};
  if (trouble_ == trouble::no_memory)
    return {errc::outcome_unknown, fmt::format("{}: no memory for the answer.", server())};
  if (is_nonsense(how))
    return {errc::protocol,
            fmt::format("{}: what came is no answer of a Consul agent: {}.", server(), words(how))};
  return {errc::outcome_unknown, fmt::format("{}: no answer came: {}.", server(), words(how))};
}

error http_transfer::give_up(cut why) const {
  const auto* const words = why == cut::closing   ? "the client is being closed"
                            : why == cut::stopped ? "it was given up"
                            : sends_ > 0          ? "no answer came in time"
                                                  : "there was no connection in time";
  auto message = fmt::format("{}: {}.", why == cut::closing ? with_.how().url : server(), words);
  if (sends_ == 0) return not_done{errc::unavailable, std::move(message)};
  return {errc::outcome_unknown, std::move(message)};
}

// libcurl may quote the server, for example from its certificate.
std::string http_transfer::words(CURLcode how) const {
  std::string out = said_[0] != '\0' ? said_.data() : curl_easy_strerror(how);
  for (auto& c : out)
    if (c < ' ' || c > '~') c = '?';
  if (out.size() > longest_words) out.resize(longest_words);
  while (!out.empty() && (out.back() == '.' || out.back() == ' ')) out.pop_back();
  return out;
}

}  // namespace holdfast::engines::consul
