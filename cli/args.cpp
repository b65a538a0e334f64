#include "args.hpp"

#include "output.hpp"
#include "text.hpp"

#include <holdfast/url.hpp>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>

namespace holdfast::cli {

namespace {

constexpr std::string_view store_flag = "--store";

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const auto end = std::min(text.find(separator), text.size());
    if (end > 0) parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

// The words before the first "--" belong to us; for run and elect the rest is the program.
struct words {
  std::vector<std::string> ours;
  std::vector<std::string> program;
};

// The name of the command that the words call, "" when there is none: the first word (for latch: two) that is
// neither a flag nor a flag's value. Only --store may stand before it.
std::string called(const std::vector<std::string>& ours) {
  std::string name;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    if (ours[i] == store_flag) {
      ++i;
    } else if (!ours[i].starts_with('-')) {
      if (!name.empty()) return find_command(name + ' ' + ours[i]) ? name + ' ' + ours[i] : name;
      name = ours[i];
      const bool group = std::any_of(commands().begin(), commands().end(), [&](const command& row) {
        return row.name.starts_with(name + ' ');
      });
      if (!group) return name;
    }
  }
  return name;
}

words split_program(std::vector<std::string> all) {
  const auto dashes = std::find(all.begin(), all.end(), "--");
  words out{{all.begin(), dashes}, {}};
  const auto* what = find_command(called(out.ours));
  if (what == nullptr || !what->runs_program) return {std::move(all), {}};
  if (dashes != all.end()) out.program.assign(dashes + 1, all.end());
  return out;
}

void refuse_unknown_command(const std::string& name) {
  std::vector<std::string_view> known;
  for (const auto& row : commands()) {
    const auto first = row.name.substr(0, row.name.find(' '));
    if (first == name) return;
    if (!row.hidden) known.push_back(first);
  }
  const auto near = closest(name, known);
  throw usage_error(fmt::format(
      "There is no command \"{}\". {}", name,
      near.empty() ? "See holdfast --help." : fmt::format("Did you mean \"{}\"?", near)));
}

CLI::Option* add(CLI::App& app, const flag& row) {
  const auto names =
      row.letter.empty() ? std::string{row.name} : fmt::format("{},{}", row.letter, row.name);
  auto* option = row.value.empty() ? app.add_flag(names) : app.add_option(names);
  option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  if (!row.value.empty()) option->type_size(1)->expected(1);
  return option;
}

void add_command(CLI::App& root, const command& row) {
  CLI::App* parent = &root;
  std::string name{row.name};
  if (const auto blank = name.find(' '); blank != std::string::npos) {
    const auto group = name.substr(0, blank);
    name.erase(0, blank + 1);
    const auto same = root.get_subcommands([&](CLI::App* a) { return a->get_name() == group; });
    parent = same.empty() ? root.add_subcommand(group)->require_subcommand(1) : same.front();
  }
  auto* app = parent->add_subcommand(name);
  for (auto word : split(row.parameters, ' ')) {
    const bool optional = word.starts_with('[');
    if (optional) word = word.substr(1, word.size() - 2);
    app->add_option(std::string{word})->required(!optional)->type_size(1)->expected(1);
  }
  for (const auto& option : row.flags) add(*app, option);
  for (const auto& option : row.flags)
    for (const auto other : split(option.excludes, '|'))
      app->get_option(std::string{option.name})->excludes(app->get_option(std::string{other}));
  add(*app, common_flags().front());
}

// What CLI11 calls "The following arguments were not expected", as a sentence with a remedy. The word itself is
// quoted only as far as it is a flag or free of secrets.
std::string unexpected(const CLI::App& app, const command* what) {
  const auto rest = app.remaining(true);
  const std::string word = rest.empty() ? "" : rest.front();
  if (!word.starts_with('-'))
    return fmt::format(
        "\"{}\" is one argument too many{}.", without_secrets(word),
        what != nullptr && what->runs_program ? "; put -- before the command to run" : "");
  const auto name = word.substr(0, word.find('='));
  std::vector<std::string_view> known;
  for (const auto* flags : {&common_flags(), what == nullptr ? &common_flags() : &what->flags})
    for (const auto& row : *flags) known.push_back(row.name);
  const auto near = closest(name, known);
  return fmt::format("There is no flag {}{}", name,
                     near.empty() ? "." : fmt::format("; did you mean {}?", near));
}

std::string with_hint(std::string sentence, const command* what) {
  if (!sentence.ends_with('.') && !sentence.ends_with('?')) sentence += '.';
  const auto name = what == nullptr ? std::string{} : std::string{what->name} + ' ';
  return fmt::format("{} See holdfast {}--help.", sentence, name);
}

void check_choice(const flag& row, const std::string& value) {
  const auto allowed = split(row.choices, '|');
  if (allowed.empty() || std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return;
  throw usage_error(
      fmt::format("{} takes one of {}, not \"{}\".", row.name, fmt::join(allowed, ", "), value));
}

// Overwrites a password that stood in argv; our copy of the words is all we need from here on.
void scrub(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    std::string_view word{argv[i]};
    if (word == "--") return;
    if (word.starts_with("--store=")) word.remove_prefix(8);
    const auto url = store_url::parse(word);
    if (!url || !url->has_secret()) continue;
    const auto at = word.find('@');
    const auto colon = word.find(':', word.find("//") + 2);
    if (colon >= at || at == std::string_view::npos) continue;
    char* begin = argv[i] + (std::strlen(argv[i]) - word.size());
    std::fill(begin + colon + 1, begin + word.rfind('@'), '*');
  }
}

}  // namespace

struct parser {
  // Throws CLI::Error.
  static arguments read(CLI::App& root, const command& what, words given) {
    auto& ours = given.ours;
    std::reverse(ours.begin(), ours.end());  // CLI11 takes them from the back
    root.parse(ours);
    arguments args;
    args.program_ = std::move(given.program);
    if (const auto* store = root.get_option(std::string{store_flag}); store->count() > 0)
      args.values_[std::string{store_flag}] = store->results().back();
    const CLI::App* app = &root;
    for (const auto part : split(what.name, ' ')) app = app->get_subcommand(std::string{part});
    for (const auto* option : app->get_options()) {
      if (option->count() == 0) continue;
      const auto name = option->get_name();
      args.values_[name] = option->results().back();
    }
    for (const auto& row : what.flags)
      if (args.has(row.name)) check_choice(row, args.text(row.name));
    return args;
  }

  static arguments about(const std::string& name) {
    arguments args;
    const auto blank = name.find(' ');
    if (!name.empty()) args.values_["COMMAND"] = name.substr(0, blank);
    if (blank != std::string::npos) args.values_["MORE"] = name.substr(blank + 1);
    return args;
  }
};

invocation parse(int argc, char** argv) {
  auto given = split_program({argv + 1, argv + argc});
  scrub(argc, argv);
  const auto name = called(given.ours);
  if (!name.empty()) refuse_unknown_command(name.substr(0, name.find(' ')));
  const auto* what = find_command(name);

  CLI::App root;
  root.set_help_flag("-h,--help");
  root.set_version_flag("--version", "");
  root.require_subcommand(1);
  root.prefix_command(false);
  add(root, common_flags().front());
  for (const auto& row : commands()) add_command(root, row);
  try {
    if (what == nullptr) {
      root.parse(std::vector<std::string>{given.ours.rbegin(), given.ours.rend()});
      throw usage_error(with_hint("Say what to do", nullptr));
    }
    auto args = parser::read(root, *what, given);
    if (what->runs_program && args.program().empty())
      throw usage_error(with_hint("There is no command to run after --", what));
    return {what, std::move(args)};
  } catch (const CLI::CallForHelp&) {
    return {find_command("help"), parser::about(name)};
  } catch (const CLI::CallForVersion&) {
    return {find_command("version"), {}};
  } catch (const CLI::ExtrasError&) {
    throw usage_error(with_hint(unexpected(root, what), what));
  } catch (const CLI::ParseError& e) {
    if (what == nullptr) throw usage_error(with_hint("Say what to do", nullptr));
    throw usage_error(with_hint(without_secrets(e.what()), what));
  }
}

bool arguments::has(std::string_view name) const { return values_.find(name) != values_.end(); }

const std::string& arguments::text(std::string_view name) const {
  static const std::string none;
  const auto it = values_.find(name);
  return it == values_.end() ? none : it->second;
}

nanoseconds arguments::duration(std::string_view name, nanoseconds fallback) const {
  if (!has(name)) return fallback;
  const auto parsed = parse_duration(text(name));
  if (!parsed)
    throw usage_error(
        fmt::format("{} takes a duration such as 10s, 250ms or 2m, not \"{}\".", name, text(name)));
  return *parsed;
}

std::int64_t arguments::integer(std::string_view name, std::int64_t fallback, std::int64_t low,
                                std::int64_t high) const {
  if (!has(name)) return fallback;
  const auto& digits = text(name);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc{} || end != digits.data() + digits.size() || value < low || value > high)
    throw usage_error(
        fmt::format("{} takes a whole number from {} to {}, not \"{}\".", name, low, high, digits));
  return value;
}

std::optional<nanoseconds> arguments::ttl() const {
  if (!has("--ttl")) return std::nullopt;
  const auto given = duration("--ttl", nanoseconds{});
  if (given == nanoseconds{})
    throw usage_error(
        "--ttl takes a time above 0, such as 10s: after a pause of that length others may take the "
        "lock. (To limit how long the lock is held, use --max-hold.)");
  return given;
}

void arguments::check_ttl(const client& store) const {
  const auto given = ttl();
  const auto& can = store.capabilities();
  if (!given || (*given >= can.min_ttl && *given <= can.max_ttl)) return;
  throw lock_error({errc::misconfigured,
                    fmt::format("--ttl {} is too {} for the store {}; give {} to {}.",
                                text("--ttl"), *given < can.min_ttl ? "short" : "long", store.url(),
                                format_duration(can.min_ttl), format_duration(can.max_ttl))});
}

std::vector<unsigned> arguments::list(std::string_view name, std::vector<unsigned> fallback) const {
  if (!has(name)) return fallback;
  std::vector<unsigned> numbers;
  for (const auto part : split(text(name), ',')) {
    unsigned value = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (error != std::errc{} || end != part.data() + part.size() || value < 1 || value > 100'000)
      throw usage_error(fmt::format("{} takes numbers separated by commas, such as 1,8,64.", name));
    numbers.push_back(value);
  }
  if (numbers.empty()) throw usage_error(fmt::format("{} needs at least one number.", name));
  return numbers;
}

std::string arguments::store_text() const {
  if (has(store_flag)) return text(store_flag);
  const char* from_environment = std::getenv("HOLDFAST_STORE");
  if (from_environment != nullptr && *from_environment != '\0') return from_environment;
  return default_store();
}

client arguments::open_store(client_options options) const {
  if (has(store_flag)) {
    const auto url = store_url::parse(text(store_flag));
    if (url && url->has_secret())
      warn(
          "Other users can see the password in --store in the list of processes; put the URL into "
          "HOLDFAST_STORE instead.");
  }
  const auto url = store_url::parse(store_text());
  const auto* variable = url ? url->find("password_env") : nullptr;
  if (variable != nullptr && *variable == withheld_password &&
      std::getenv(withheld_password) == nullptr)
    throw lock_error(
        {errc::misconfigured,
         fmt::format("The store {} needs a password: the holdfast around this command has it in "
                     "its address, and does not hand it on. Give it there as password_file, "
                     "password_env or HOLDFAST_PASSWORD, or here as {}.",
                     url->str(), withheld_password)});
  return client::open(store_text(), std::move(options));
}

void warn_if_private(const client& store) {
  if (store.capabilities().cross_process) return;
  warn(
      fmt::format("The store {} lives in this one process and excludes no other; name one that "
                  "they share with --store or HOLDFAST_STORE, such as file:/var/lib/myapp/locks.",
                  store.url()));
}

}  // namespace holdfast::cli
