#include "support/reserved_port.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace holdfast::testing {

reserved_port::reserved_port() {
  socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  const int yes = 1;
  if (socket_ < 0 || ::bind(socket_, generic, size) != 0 ||
      ::getsockname(socket_, generic, &size) != 0 ||
      ::setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0) {
    const int reason = errno;
    if (socket_ >= 0) ::close(socket_);
    throw std::system_error(reason, std::system_category(), "no free port");
  }
  number_ = ntohs(address.sin_port);
}

reserved_port::~reserved_port() { ::close(socket_); }

}  // namespace holdfast::testing
