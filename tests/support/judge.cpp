#include "support/judge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace holdfast::testing {

namespace {

constexpr std::size_t enough_complaints = 20;

auto in_us(nanoseconds length) {
  return std::chrono::duration_cast<std::chrono::microseconds>(length).count();
}

using turns_of_a_name = std::vector<const turn*>;

// Walks through the turns by their beginning, with the turns that are still believed then.
class exclusion {
 public:
  exclusion(const leniency& mercy, verdict& into) : mercy_(mercy), into_(into) {}

  void check(turns_of_a_name turns) {
    std::ranges::sort(turns, {}, &turn::begin);
    turns_of_a_name inside;
    for (const auto* later : turns) {
      std::erase_if(inside, [&](const turn* other) { return other->last < later->begin; });
      std::uint64_t used = later->weight;
      for (const auto* other : inside) used += other->weight;
      if (used > later->capacity) blame(inside, *later);
      inside.push_back(later);
    }
    into_.excused += hit_.size();
  }

 private:
  void blame(const turns_of_a_name& inside, const turn& later) {
    for (const auto* other : inside) {
      const auto both = std::min(other->last, later.last) - later.begin;
      const auto& told = other->was_told ? *other : later;
      if (told.was_told && both < mercy_.longest) {
        hit_.insert(&told);
        continue;
      }
      if (into_.complaints.size() > enough_complaints) return;
      into_.complaints.push_back(fmt::format(
          "{}: clients {} (token {}, {} of {}) and {} (token {}, {} of {}) believed at "
          "once, with {} "
          "inside, for {} us{}",
          later.name, other->client, other->token.value, other->weight, other->capacity,
          later.client, later.token.value, later.weight, later.capacity, inside.size() + 1,
          in_us(both), other->was_told || later.was_told ? " (one was told)" : ""));
    }
  }

  const leniency& mercy_;
  verdict& into_;
  std::set<const turn*> hit_;
};

// A client that asked after another had its grant has the larger token: the largest token seen before is enough
// to know.
void check_tokens(turns_of_a_name by_asking, verdict& into) {
  std::erase_if(by_asking, [](const turn* granted) { return granted->token.value == 0; });
  auto by_grant = by_asking;
  std::ranges::sort(by_asking, {}, &turn::asked);
  std::ranges::sort(by_grant, {}, &turn::begin);
  const turn* largest = nullptr;
  auto next = by_grant.begin();
  for (const auto* asking : by_asking) {
    for (; next != by_grant.end() && (*next)->begin < asking->asked; ++next)
      if (largest == nullptr || (*next)->token > largest->token) largest = *next;
    if (largest == nullptr || asking->token > largest->token) continue;
    if (into.complaints.size() > enough_complaints) return;
    into.complaints.push_back(fmt::format(
        "{}: client {} asked after client {} had been granted {}, and got {}", asking->name,
        asking->client, largest->client, largest->token.value, asking->token.value));
  }
}

}  // namespace

verdict judge(std::vector<turn> turns, const leniency& mercy) {
  std::map<std::string, turns_of_a_name> by_name;
  for (const auto& each : turns) by_name[each.name].push_back(&each);
  verdict out;
  for (const auto& [name, of] : by_name) {
    exclusion{mercy, out}.check(of);
    check_tokens(of, out);
  }
  const auto allowed = mercy.one_holder_in == 0 ? 0 : turns.size() / mercy.one_holder_in;
  if (out.excused > allowed)
    out.complaints.push_back(fmt::format("{} holders of {} were hit: it is rare, or it is ours",
                                         out.excused, turns.size()));
  return out;
}

std::size_t record::losses() const {
  const std::lock_guard lock{guard_};
  return static_cast<std::size_t>(std::ranges::count_if(all_, &turn::was_lost));
}

}  // namespace holdfast::testing
