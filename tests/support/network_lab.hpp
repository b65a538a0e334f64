// A network of its own for a test, with cables that can be pulled.
//
//   if (const auto network = network_lab::available(); !network) GTEST_SKIP() << network.why;
//   network_lab lab{3};
//   const auto a = lab.at(0, [&] { return client::open(url); });
//   lab.cut(0);    // packets vanish in both directions, and nothing is closed or reset
//   lab.join(0);
//
// A place is a network namespace with one cable (a veth pair) to a switch (a bridge), which has a namespace of its own,
// the hub. A namespace belongs to a thread, and is inherited by the threads and processes that it starts: whatever is
// begun within at() lives at that place for good, and a client with all its connections is.
//
// The namespaces have no names. Descriptors of this process keep them, so the kernel removes them and all that is in
// them when the test ends, also when it crashes. The machine's own network is never touched.
#pragma once

#include "support/required.hpp"
#include "support/temp_dir.hpp"

#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace holdfast::testing {

// At most 100 places. One thread may cut and join, all may use at().
class network_lab {
 public:
  // The place at the switch itself: its cable cannot be pulled.
  static constexpr std::size_t hub = std::numeric_limits<std::size_t>::max();

  // May this process make such a network, and can it?
  static availability available();

  // Throws, with the words of ip, when it cannot be made.
  explicit network_lab(std::size_t places);
  network_lab(const network_lab&) = delete;
  network_lab& operator=(const network_lab&) = delete;
  ~network_lab();

  // 10.77.0.1 and so on. Each place has a 127.0.0.1 of its own, too.
  std::string address(std::size_t place) const;

  // Runs it there, on this thread.
  template <class Act>
  decltype(auto) at(std::size_t place, Act&& act) const {
    const visit there{descriptor(place)};
    return std::forward<Act>(act)();
  }

  // Pulls the cable of a place, and puts it back.
  void cut(std::size_t place);
  void join(std::size_t place);
  bool is_cut(std::size_t place) const { return place != hub && places_.at(place).is_cut; }

  // These two do not hear each other any more; all other places hear both.
  void separate(std::size_t place, std::size_t other);
  void reunite(std::size_t place, std::size_t other);

 private:
  class visit {
   public:
    explicit visit(int there);
    visit(const visit&) = delete;
    visit& operator=(const visit&) = delete;
    ~visit();

   private:
    int home_;
  };
  struct site {
    int descriptor = -1;
    bool is_cut = false;
  };

  int descriptor(std::size_t place) const;
  void build(std::size_t places);
  void lay_cable(std::size_t place);
  void close() noexcept;
  void ip(std::size_t place, const std::string& words) const;
  void lose_neighbour(std::size_t place, std::size_t neighbour) const;
  void find_neighbour(std::size_t place, std::size_t neighbour) const;

  temp_dir dir_;  // what ip says
  int hub_ = -1;
  std::vector<site> places_;
};

}  // namespace holdfast::testing
