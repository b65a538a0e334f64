// Guards that check a fencing token where the work happens.
//
// A lease can end between the check and the act. The resource itself must refuse whoever comes with
// an older token than it has seen, from the first touch on, reads included: a fence checked only on
// writes lets an old holder's write in after the new holder has read.
#pragma once

#include <holdfast/result.hpp>
#include <holdfast/types.hpp>

#include <string>

namespace holdfast {

// Keeps the newest token of one resource in a small file beside it (or anywhere all its users can reach).
//
//   holdfast::file_fence fence{"/srv/stock.fence"};
//   fence.admit(lease.token()).value();     // throws lock_error lost when a newer holder was here already
//   ... read and write the resource ...
class file_fence {
 public:
  explicit file_fence(std::string path);
  // ok and remembered when `token` is not older than any seen; lost otherwise. The new token is on
  // disk (fsync) before ok.
  result<void> admit(fencing_token token) const;
  result<fencing_token> newest() const;  // 0 when nobody was here

 private:
  std::string path_;
};

}  // namespace holdfast
