// Somebody is taking a key away. The engine does not go before that is done (see_off).
#pragma once

#include "engines/etcd/etcd_engine.hpp"

namespace holdfast::engines::etcd {

class etcd_engine::farewell {
 public:
  explicit farewell(etcd_engine& from) : from_(from) {
    const std::lock_guard lock{from_.parting_};
    ++from_.leaving_;
  }
  farewell(const farewell&) = delete;
  farewell& operator=(const farewell&) = delete;
  ~farewell() {
    const std::lock_guard lock{from_.parting_};
    if (--from_.leaving_ == 0) from_.parted_.notify_all();
  }

 private:
  etcd_engine& from_;
};

}  // namespace holdfast::engines::etcd
