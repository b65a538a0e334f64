// A certificate authority for one test, made by the openssl command. Elliptic curves, so it takes milliseconds.
#pragma once

#include <filesystem>
#include <string>

namespace holdfast::testing {

struct certificate {
  std::string file;  // PEM
  std::string key;   // PEM
};

class certificate_authority {
 public:
  // Writes into `folder`, which outlives it. Throws when there is no openssl.
  explicit certificate_authority(std::filesystem::path folder);

  const std::string& file() const noexcept { return own_.file; }
  // For "DNS:localhost,IP:127.0.0.1" and the like; `name` is that of the files.
  certificate issue(const std::string& name, const std::string& alternative_names) const;

 private:
  std::filesystem::path folder_;
  certificate own_;
};

}  // namespace holdfast::testing
