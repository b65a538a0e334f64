// Clients that fight for one lock on etcd.
//
// One exception is the server's (etcd 3.4 to 3.5.7, issue 15247): an old leader that wakes from a stall may end a lease
// which was renewed an instant before. Then the next holder has its lock, and rightly so; the old one must learn of it
// from the store, within a second, or from its release if that comes first. Such holders are counted and shown.
#pragma once

#include "faults/etcd_faults.hpp"
#include "faults/history.hpp"

namespace holdfast::testing {

class etcd_record : public history {
 public:
  etcd_record() : history({1s, 20}) {}
};

}  // namespace holdfast::testing
