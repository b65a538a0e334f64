#include "engines/redis/cluster_map.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>

namespace holdfast::engines::redis {

namespace {

std::string_view cut(std::string_view& text, char at) {
  const auto end = std::min(text.find(at), text.size());
  const auto out = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return out;
}

template <class N>
bool read_digits(std::string_view text, N& into) {
  const auto* end = text.data() + text.size();
  const auto [at, code] = std::from_chars(text.data(), end, into);
  return code == std::errc{} && at == end;
}

bool has_flag(std::string_view flags, std::string_view wanted) {
  while (!flags.empty())
    if (cut(flags, ',') == wanted) return true;
  return false;
}

// "10.0.0.1:6379@16379,host.example": the name is optional.
bool read_place(std::string_view text, const std::string& asked, node_view& into) {
  auto place = cut(text, ',');
  into.host_name = cut(text, ',');
  if (into.host_name.find('=') != std::string::npos) into.host_name.clear();
  place = place.substr(0, place.find('@'));
  const auto colon = place.rfind(':');
  if (colon == std::string_view::npos || !read_digits(place.substr(colon + 1), into.where.port))
    return false;
  into.where.host = place.substr(0, colon);
  if (into.where.host.empty()) into.where.host = asked;
  return into.where.port != 0;
}

// "0-5460", "77"; "[93->-NODE]" is a slot on its way.
void read_slots(std::string_view text, node_view& into) {
  while (!text.empty()) {
    auto word = cut(text, ' ');
    if (word.empty() || word.front() == '[') continue;
    unsigned from = 0, to = 0;
    if (!read_digits(cut(word, '-'), from)) continue;
    to = from;
    if (!word.empty() && !read_digits(word, to)) continue;
    if (from <= to && to < slot_count) into.slots.emplace_back(from, to);
  }
}

// "ID PLACE FLAGS MASTER PING PONG EPOCH LINK SLOT..."
std::optional<node_view> read_node(std::string_view line, const std::string& asked) {
  node_view out;
  cut(line, ' ');
  const auto place = cut(line, ' '), flags = cut(line, ' ');
  for (int i = 0; i < 3; ++i) cut(line, ' ');
  if (!read_digits(cut(line, ' '), out.epoch)) return std::nullopt;
  cut(line, ' ');
  if (has_flag(flags, "noaddr") || has_flag(flags, "handshake") || !read_place(place, asked, out))
    return std::nullopt;
  out.is_master = has_flag(flags, "master");
  out.has_failed = has_flag(flags, "fail");
  if (out.is_master) read_slots(line, out);
  return out;
}

}  // namespace

std::vector<node_view> read_nodes(std::string_view text, const std::string& asked) {
  std::vector<node_view> out;
  while (!text.empty()) {
    auto line = cut(text, '\n');
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (auto node = read_node(line, asked)) out.push_back(std::move(*node));
  }
  return out;
}

cluster_map::cluster_map(const std::vector<std::vector<node_view>>& views) {
  owners_.fill(nobody);
  for (const auto& view : views)
    for (const auto& node : view) {
      nodes_.push_back(node.where);
      if (node.slots.empty()) continue;
      auto at = std::ranges::find(masters_, node.where, &node_view::where);
      if (at == masters_.end()) at = masters_.insert(at, node);
      if (node.epoch > at->epoch) *at = node;
      const auto index = static_cast<std::uint16_t>(at - masters_.begin());
      for (const auto& [from, to] : node.slots)
        for (auto slot = from; slot <= to; ++slot) {
          if (owners_[slot] != nobody && epochs_[slot] >= node.epoch) continue;
          owners_[slot] = index;
          epochs_[slot] = node.epoch;
        }
    }
  drop_masters_without_slots();
  std::ranges::sort(nodes_);
  nodes_.erase(std::unique(nodes_.begin(), nodes_.end()), nodes_.end());
}

bool known_epochs::refuses(const cluster_map& map, steady_time now) {
  constexpr std::chrono::seconds to_agree{10};
  bool is_older = false;
  for (unsigned slot = 0; slot < slot_count; ++slot)
    is_older = is_older || (map.master_of(slot) && map.epoch_of(slot) < of_slot_[slot]);
  if (is_older && !older_since_) older_since_ = now;
  if (is_older && now - *older_since_ < to_agree) return true;
  older_since_.reset();
  for (unsigned slot = 0; slot < slot_count; ++slot)
    if (map.master_of(slot)) of_slot_[slot] = map.epoch_of(slot);
  return false;
}

// Such as one that was cut off and claims what others have with a higher epoch.
void cluster_map::drop_masters_without_slots() {
  std::vector<std::uint16_t> moved(masters_.size(), nobody);
  std::vector<node_view> kept;
  for (auto& owner : owners_) {
    if (owner == nobody) continue;
    if (moved[owner] == nobody) {
      moved[owner] = static_cast<std::uint16_t>(kept.size());
      kept.push_back(std::move(masters_[owner]));
    }
    owner = moved[owner];
  }
  masters_ = std::move(kept);
}

std::optional<std::size_t> cluster_map::master_of(unsigned slot) const noexcept {
  return owners_[slot] == nobody ? std::nullopt : std::optional<std::size_t>{owners_[slot]};
}

std::vector<unsigned> cluster_map::tags_of(std::size_t master) const {
  std::vector<unsigned> out;
  for (unsigned tag = 0; tag < tag_count; ++tag)
    if (owners_[slot_of_tag(tag)] == master) out.push_back(tag);
  return out;
}

std::size_t cluster_map::slots_without_master() const noexcept {
  return static_cast<std::size_t>(std::ranges::count(owners_, nobody));
}

}  // namespace holdfast::engines::redis
