#include "engines/zk/janitor.hpp"

#include "engines/zk/node_names.hpp"

#include <utility>

namespace holdfast::engines::zk {

namespace {

using namespace std::chrono_literals;

constexpr nanoseconds idle_for = 5s;
constexpr nanoseconds between_sweeps = 1s;
constexpr std::size_t most_swept_at_once = 200;
constexpr std::size_t most_made = 100'000;
constexpr nanoseconds answered_within = 10s;

steady_time swept_now() { return std::chrono::steady_clock::now(); }

bool is_of_permits(std::string_view folder) { return last_of(folder) == permits_segment; }

}  // namespace

// Only the permits' folder has a content of ours: of the others it is enough to know that there is none.
batch look_at_folders(const std::vector<used_folder>& folders) {
  batch out;
  for (const auto& folder : folders)
    is_of_permits(folder.path) ? out.get(folder.path) : out.exists(folder.path);
  return out;
}

// With the version that was read: what is written meanwhile keeps its node.
batch removal_of(std::vector<used_folder>& folders, const answers& seen) {
  batch out;
  std::vector<used_folder> ours;
  for (std::size_t i = 0; i < folders.size(); ++i) {
    if (!seen.ok(i)) continue;
    jute::stat stat;
    bool is_ours = false;
    if (is_of_permits(folders[i].path)) {
      const auto node = jute::read_node(seen[i].rest);
      is_ours = node && (node->data.empty() || node->data.starts_with(capacity_mark));
      if (node) stat = node->stat;
    } else if (const auto found = jute::read_stat(seen[i].rest)) {
      is_ours = found->data_length == 0;
      stat = *found;
    }
    if (folders[i].made != 0 && folders[i].made != stat.czxid) is_ours = false;
    if (!is_ours) continue;
    out.erase(folders[i].path, stat.version);
    ours.push_back(std::move(folders[i]));
  }
  folders = std::move(ours);
  return out;
}

void janitor::note_made(std::string folder, std::int64_t czxid) {
  const std::lock_guard lock{guard_};
  if (ending_) return;
  if (made_.size() >= most_made) made_.clear();  // the server sweeps them, too
  made_.insert_or_assign(std::move(folder), czxid);
}

void janitor::note_used(std::vector<std::string> folders) {
  const std::lock_guard lock{guard_};
  auto key = folders.back();
  all_.insert_or_assign(std::move(key), used{std::move(folders), swept_now()});
  if (!is_planned_ && !ending_) plan(idle_for);
}

void janitor::end() {
  const std::lock_guard lock{guard_};
  ending_ = true;
  all_.clear();
  made_.clear();
}

void janitor::plan(nanoseconds after) {
  is_planned_ = true;
  ensemble_.driver().at(swept_now() + after, [this] { sweep(); });
}

// A batch at a time; the next when it is answered.
void janitor::sweep() {
  std::vector<used_folder> folders;
  {
    const std::lock_guard lock{guard_};
    is_planned_ = false;
    if (ending_ || all_.empty()) return;
    const auto before = swept_now() - idle_for;
    for (auto at = all_.begin(); at != all_.end() && folders.size() < most_swept_at_once;) {
      if (at->second.last > before) {
        ++at;
        continue;
      }
      for (const auto& folder : at->second.folders) {
        const auto made = made_.extract(folder);
        if (!made.empty()) folders.push_back({folder, made.mapped()});
      }
      at = all_.erase(at);
    }
    if (folders.empty() && all_.empty()) return;
    if (folders.empty()) return plan(between_sweeps);
    is_planned_ = true;  // until this is answered
  }
  auto look = look_at_folders(folders);
  ensemble_.ask_in_background(
      std::move(look), answered_within,
      [this, all = std::move(folders)](const result<answers>& seen) { remove(all, seen); });
}

void janitor::remove(std::vector<used_folder> folders, const result<answers>& seen) {
  auto out = seen ? removal_of(folders, *seen) : batch{};
  if (out.size() == 0) return sweep();
  ensemble_.ask_in_background(std::move(out), answered_within,
                              [this, all = std::move(folders)](const result<answers>& removed) {
                                if (removed) keep_in_mind(all, *removed);
                                sweep();
                              });
}

// What is in use at the moment is ours all the same when it is given back.
void janitor::keep_in_mind(const std::vector<used_folder>& folders, const answers& removed) {
  const std::lock_guard lock{guard_};
  if (ending_) return;
  for (std::size_t i = 0; i < folders.size(); ++i)
    if (removed.err(i) == jute::code::not_empty)
      made_.try_emplace(folders[i].path, folders[i].made);
}

}  // namespace holdfast::engines::zk
