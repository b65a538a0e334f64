// A long-lived stream to whichever member of the cluster does: opened again, at the next member, when it ends.
//
// Everything here, and every call of the user, is of the reactor's thread.
#pragma once

#include "engines/etcd/cluster.hpp"

#include <memory>
#include <optional>
#include <string_view>

namespace holdfast::engines::etcd {

class stream {
 public:
  class user {
   public:
    virtual void on_open() noexcept = 0;  // a fresh one, on which nothing was said yet
    virtual void on_message(std::string_view message) noexcept = 0;
    virtual void on_close() noexcept = 0;  // another one follows

   protected:
    ~user() = default;
  };

  stream(cluster& with, std::string_view method, user& to)
      : cluster_(with), method_(method), user_(to) {}
  ~stream() { close(); }
  stream(const stream&) = delete;
  stream& operator=(const stream&) = delete;

  void open();  // and keep open
  bool is_open() const noexcept { return listener_ != nullptr; }
  std::size_t member() const noexcept { return member_; }
  void write(std::string_view message);
  // This member does not do: closes, and opens at the next one at once.
  void move();
  void close() noexcept;

 private:
  class listener;
  void connect();
  void reconnect_later(nanoseconds pause);
  void ended(const result<grpc::reply>& why);
  void let_go() noexcept;

  cluster& cluster_;
  const std::string_view method_;
  user& user_;
  bool wanted_ = false;
  std::size_t member_ = 0;
  std::shared_ptr<grpc::channel> over_;
  grpc::channel::stream_id id_ = 0;
  listener* listener_ = nullptr;
  nanoseconds pause_{};
  std::optional<net::reactor::timer_id> timer_;
};

// Runs `work` on the reactor's thread and waits for it. Not to be called there.
void run_there(net::reactor& driver, const std::function<void()>& work);

}  // namespace holdfast::engines::etcd
