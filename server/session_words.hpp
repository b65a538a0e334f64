// What a session says, as JSON. Instants are told as ages before the request, or before the event that tells them.
#pragma once

#include "json_text.hpp"

#include <holdfast/engine.hpp>

#include <string>
#include <string_view>

namespace holdfast::server {

// When a request came: by the clock that clients are told about, and by the one of the store's grants. A grant that
// begins later counts from then on, as far as its client is concerned.
struct moment {
  steady_time shown;
  steady_time of_store;
};

// Text that would not be shown as it is. Valid UTF-8 it is: it came as JSON.
bool has_control(std::string_view text);

std::string hex_of(const std::array<std::uint64_t, 2>& client);

std::string json_of(const capabilities& caps);
std::string json_of(const grant& held, const moment& before);
std::string json_of(const renewal& asked, const moment& before);
std::string json_of(const lock_info& lock);
std::string json_of(const counter_info& one);
std::string json_of(const finding& one);
void add_counter(json_object& to, const counter& now);
void add_proof(json_object& to, const session_proof& proof, const moment& before);

}  // namespace holdfast::server
