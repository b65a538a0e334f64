// Everything that --json prints. ASCII only, so that hostile names are harmless on a terminal too.
#pragma once

#include <holdfast/capabilities.hpp>
#include <holdfast/client.hpp>
#include <holdfast/engine.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace holdfast::cli {

struct bench_report;

std::string locks_json(std::span<const lock_info> locks);  // an array
std::string lock_json(const lock_info& lock);
std::string capabilities_json(const std::string& url, const capabilities& caps);
std::string findings_json(const std::string& url, const std::string& engine,
                          std::span<const finding> findings);
std::string latch_json(std::string_view name, std::int64_t left);
std::string latches_json(std::span<const latch_info> latches);  // an array
std::string removed_json(std::string_view name);
std::string broken_json(std::string_view name, std::size_t holders);
std::string bench_json(const bench_report& report);

}  // namespace holdfast::cli
