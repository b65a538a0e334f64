// Takes the nodes of locks away that this client has used and does not use any more, so that names that are used once
// do not pile up. They are containers, which the server removes by itself when they are empty; but it does so once a
// minute, and ten thousand at most.
//
// A node that has children is not removed: the server refuses. A client that comes just then makes it anew. Nor is one
// that this client did not make (no server tells what is a container, and others count on their own nodes), or that has
// a content that we did not write.
#pragma once

#include "engines/zk/ensemble.hpp"

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace holdfast::engines::zk {

struct used_folder {
  std::string path;
  std::int64_t made = 0;  // its czxid; 0: whoever made it
};
// A look at these nodes, and with its answers the removal of those that have no content of another program: the others
// are taken out of the list.
batch look_at_folders(const std::vector<used_folder>& folders);
batch removal_of(std::vector<used_folder>& folders, const answers& seen);

class janitor {
 public:
  explicit janitor(ensemble& with) : ensemble_(with) {}
  janitor(const janitor&) = delete;
  janitor& operator=(const janitor&) = delete;

  // This client has made that node; a lock below it will be given back.
  void note_made(std::string folder, std::int64_t czxid);
  // A lock below this folder, or these, innermost first, was given back.
  void note_used(std::vector<std::string> folders);
  void end();

 private:
  struct used {
    std::vector<std::string> folders;
    steady_time last;
  };
  void plan(nanoseconds after);  // REQUIRES: guard_ is held
  void sweep();
  void remove(std::vector<used_folder> folders, const result<answers>& seen);
  void keep_in_mind(const std::vector<used_folder>& folders, const answers& removed);

  ensemble& ensemble_;
  std::mutex guard_;
  bool ending_ = false;
  bool is_planned_ = false;
  std::unordered_map<std::string, used> all_;           // by the outermost
  std::unordered_map<std::string, std::int64_t> made_;  // the czxid of each
};

}  // namespace holdfast::engines::zk
