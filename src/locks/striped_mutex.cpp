#include <holdfast/striped_mutex.hpp>

#include <holdfast/lock_all.hpp>

#include "core/client_core.hpp"

#include <fmt/format.h>

#include <random>

namespace holdfast {

namespace {

constexpr std::size_t most_stripes = 4096;

std::size_t somewhere(std::size_t size) {
  thread_local std::minstd_rand engine{std::random_device{}()};
  return std::uniform_int_distribution<std::size_t>{0, size - 1}(engine);
}

}  // namespace

striped_mutex::striped_mutex(const client& store, std::string name, std::size_t stripes)
    : store_(store) {
  check_name(name).value();
  if (stripes < 1 || stripes > most_stripes)
    throw lock_error({errc::misconfigured,
                      fmt::format("striped_mutex '{}' was given {} stripes; it takes 1 to {}", name,
                                  stripes, most_stripes)});
  stripes_.reserve(stripes);
  for (std::size_t i = 0; i < stripes; ++i)
    stripes_.push_back(std::make_unique<mutex>(store, fmt::format("{}/{}", name, i)));
}

std::size_t striped_mutex::stripe_of(std::string_view key) const noexcept {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : key) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash % stripes_.size();
}

result<stripe_lease> striped_mutex::acquire(std::string_view key, const acquire_options& options) {
  const auto stripe = stripe_of(key);
  auto got = stripes_[stripe]->acquire(options);
  if (!got) return std::move(got).error();
  return stripe_lease{stripe, std::move(*got)};
}

result<stripe_lease> striped_mutex::acquire_any(const acquire_options& options) {
  if (auto ok = store_.core()->checked(options); !ok) return std::move(ok).error();
  const auto first = somewhere(stripes_.size());
  auto once = options;
  once.wait = nanoseconds::zero();
  for (std::size_t i = 0; i < stripes_.size(); ++i) {
    const auto stripe = (first + i) % stripes_.size();
    auto got = stripes_[stripe]->acquire(once);
    if (got) return stripe_lease{stripe, std::move(*got)};
    if (got.error().code() != errc::busy) return std::move(got).error();
  }
  if (options.wait == nanoseconds::zero())
    return error{errc::busy, fmt::format("all {} stripes are held", stripes_.size())};
  auto got = stripes_[first]->acquire(options);
  if (!got) return std::move(got).error();
  return stripe_lease{first, std::move(*got)};
}

result<std::vector<lease>> striped_mutex::acquire_all(const acquire_options& options) {
  std::vector<std::string> names;
  names.reserve(stripes_.size());
  for (const auto& stripe : stripes_) names.push_back(stripe->name());
  return lock_all(store_, names, options);
}

}  // namespace holdfast
