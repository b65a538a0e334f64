#include "support/loopback.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <stdexcept>

namespace holdfast::testing {

loopback_connection::loopback_connection(std::uint16_t port, std::chrono::milliseconds limit)
    : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  if (socket_ < 0) throw std::runtime_error("no socket is left for a question to a server");
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(limit);
  const timeval wait{whole.count(), std::chrono::microseconds{limit - whole}.count()};
  ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
  ::setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);  // connect obeys it
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  is_open_ = ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

loopback_connection::~loopback_connection() { ::close(socket_); }

bool loopback_connection::send(std::string_view bytes) const {
  return ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(bytes.size());
}

loopback_connection::received loopback_connection::receive(std::string& to) const {
  std::array<char, 65536> buffer;  // NOLINT: filled by recv
  const auto count = ::recv(socket_, buffer.data(), buffer.size(), 0);
  if (count < 0) return received::failure;
  to.append(buffer.data(), static_cast<std::size_t>(count));
  return count == 0 ? received::end : received::something;
}

std::string ask_loopback(std::uint16_t port, std::string_view question,
                         std::chrono::milliseconds limit) {
  const loopback_connection server{port, limit};
  if (!server.is_open() || !server.send(question)) return {};
  std::string reply;
  auto got = server.receive(reply);
  while (got == loopback_connection::received::something) got = server.receive(reply);
  return got == loopback_connection::received::end ? reply : std::string{};
}

bool accepts_connections(std::uint16_t port) {
  return loopback_connection{port, std::chrono::seconds{2}}.is_open();
}

}  // namespace holdfast::testing
