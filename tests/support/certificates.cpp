#include "support/certificates.hpp"

#include "support/process.hpp"

#include <stdexcept>
#include <utility>
#include <vector>

namespace holdfast::testing {

namespace {

// A fresh key and a certificate for it, self-signed unless `more` names a signer.
certificate make(const std::filesystem::path& folder, const std::string& name,
                 const std::vector<std::string>& more) {
  const auto openssl = find_program("openssl");
  if (!openssl) throw std::runtime_error("openssl is not in the PATH; install the package openssl");
  certificate made{(folder / (name + ".crt")).string(), (folder / (name + ".key")).string()};
  std::vector<std::string> words{
      *openssl,  "req",   "-x509", "-newkey", "ec",          "-pkeyopt", "ec_paramgen_curve:P-256",
      "-nodes",  "-days", "2",     "-subj",   "/CN=" + name, "-out",     made.file,
      "-keyout", made.key};
  words.insert(words.end(), more.begin(), more.end());
  const auto log = folder / (name + ".log");
  if (process{std::move(words), log.string()}.wait() != 0) {
    throw std::runtime_error("openssl could not make a certificate; see " + log.string());
  }
  return made;
}

}  // namespace

certificate_authority::certificate_authority(std::filesystem::path folder)
    : folder_(std::move(folder)), own_(make(folder_, "test-ca", {})) {}

certificate certificate_authority::issue(const std::string& name,
                                         const std::string& alternative_names) const {
  return make(
      folder_, name,
      {"-CA", own_.file, "-CAkey", own_.key, "-addext", "subjectAltName=" + alternative_names,
       "-addext", "basicConstraints=critical,CA:FALSE"});
}

}  // namespace holdfast::testing
