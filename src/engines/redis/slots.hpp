// Redis Cluster: which of its 16384 slots a key is in, and the tags by which the native layout puts all keys of a lock
// into one slot.
//
// A tag is a number in braces, "{42}": there is one for each 64 slots, the smallest number whose own slot is one of
// them. A name has the tag of the 64 slots to which it would itself belong as a key: names with the same text between
// braces, "{order-7}/stock", have one tag, and can be locked together in one step. So the keys of a lock, the counter
// of its tokens and the notes about clients are in one slot, and what is kept per slot does not grow with the number of
// names. This is part of the layout: all clients of a cluster must agree on it.
#pragma once

#include <cstdint>
#include <string_view>

namespace holdfast::engines::redis {

inline constexpr unsigned slot_count = 16'384;
inline constexpr unsigned tag_count = 256;

// Of a key as the server sees it: what is between the first braces, if there is anything, decides.
unsigned slot_of(std::string_view key) noexcept;

// Which tag, from 0; and the tag itself, with its braces.
unsigned tag_of(std::string_view name) noexcept;
std::string_view tag_text(unsigned tag) noexcept;
unsigned slot_of_tag(unsigned tag) noexcept;

}  // namespace holdfast::engines::redis
