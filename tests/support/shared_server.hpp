// A server for all tests of this process, for a static variable.
//
// A forked child that exits runs this destructor, too, and must leave the parent's server alone.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <memory>
#include <utility>

namespace holdfast::testing {

template <class Server>
class shared_server {
 public:
  explicit shared_server(typename Server::options how = {})
      : server_(std::make_unique<Server>(std::move(how))) {}
  shared_server(const shared_server&) = delete;
  shared_server& operator=(const shared_server&) = delete;
  ~shared_server() {
    if (::getpid() != owner_) static_cast<void>(server_.release());  // NOLINT: on purpose
  }
  Server& operator*() noexcept { return *server_; }

 private:
  std::unique_ptr<Server> server_;
  pid_t owner_ = ::getpid();
};

}  // namespace holdfast::testing
