// Lock names as paths of ZooKeeper, and back. Pure.
//
// A name is a path below the chroot, as it is: "stock/sku-42" is /stock/sku-42, which Java knows as the path of the
// same lock. Escaped, as ~XX for a byte in hex, is only what could not be that:
//
// - what ZooKeeper refuses in a path (characters beyond U+FFFF, of private use, U+FFF0 and up), and "~" itself;
// - the first byte of a segment that Curator would sort before its own nodes if one lock lies below another (it begins
//   with 0 or with what comes before it), or that has a meaning of its own ("locks" and "leases" below a semaphore,
//   "zookeeper" at the top);
// - - and _ in a segment that ends like a sequential node: it would be taken for a contender of the lock above.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace holdfast::engines::zk {

// Of the lock: the node whose children are its contenders.
std::string path_of(std::string_view root, std::string_view name);
// As one segment, for stores of things that have no children.
std::string flat_path_of(std::string_view root, std::string_view name);
// The name of a lock or of one segment of it; nothing: no lock has such a path.
std::optional<std::string> decoded(std::string_view path);

// Counters lie apart, and so does how long they are kept. No segment of a name is written so.
inline std::string counters_root(std::string_view root) { return std::string{root} + "/~counters"; }
inline std::string kept_root(std::string_view root) { return std::string{root} + "/~kept"; }
std::string counter_path(std::string_view root, std::string_view name);
std::string kept_path(std::string_view root, std::string_view name);

}  // namespace holdfast::engines::zk
