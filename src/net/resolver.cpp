#include "net/resolver.hpp"

#include "support/reaper.hpp"

#include <mutex>
#include <system_error>

namespace holdfast::net {

struct resolver::return_path {
  std::mutex guard;
  post_function post;  // empty: there is no way back any more
};

resolver::resolver(post_function post) : return_path_(std::make_shared<return_path>()) {
  return_path_->post = std::move(post);
}

resolver::~resolver() {
  {
    std::lock_guard locked{return_path_->guard};
    return_path_->post = nullptr;
  }
  // getaddrinfo() cannot be cancelled and may take half a minute; the destructor of a client must not.
  for (auto& [which, unfinished] : running_) {
    auto worker = std::make_shared<std::thread>(std::move(unfinished.worker));
    support::run_elsewhere([worker] { worker->join(); });
  }
}

void resolver::look_up(const std::string& host, std::uint16_t port,
                       std::function<void(const answer&)> done) {
  const question which{host, port};
  auto& mine = running_[which];
  mine.asked.push_back(std::move(done));
  if (mine.worker.joinable()) return;
  try {
    mine.worker = std::thread{[this, which, back = return_path_] {
      auto found = std::make_shared<const answer>(net::look_up(which.first, which.second));
      std::lock_guard locked{back->guard};
      // `this` is looked at only on the reactor's thread, and only while there is a way back.
      if (back->post) back->post([this, which, found] { finish(which, *found); });
    }};
  } catch (const std::system_error& none) {
    const answer failed =
        error{errc::unavailable,
              std::string{"no thread for looking up a host name is to be had: "} + none.what()};
    return_path_->post([this, which, failed] { finish(which, failed); });
  }
}

void resolver::finish(const question& which, const answer& found) {
  auto ended = running_.extract(which);
  if (ended.empty()) return;
  // It has posted this as its last act, so this is no wait.
  if (ended.mapped().worker.joinable()) ended.mapped().worker.join();
  for (const auto& done : ended.mapped().asked) done(found);
}

}  // namespace holdfast::net
