#include "assets.hpp"

// The paths come from CMake. Ends with a byte that is not counted, so that an empty file has a label of its own.
#define HOLDFAST_EMBED(label, path)               \
  __asm__(                                        \
      ".pushsection .rodata\n"                    \
      ".balign 16\n"                              \
      "holdfast_asset_" #label                    \
      ":\n"                                       \
      ".incbin \"" path                           \
      "\"\n"                                      \
      "holdfast_asset_" #label                    \
      "_end:\n"                                   \
      ".byte 0\n"                                 \
      ".popsection\n");                           \
  extern "C" const char holdfast_asset_##label[]; \
  extern "C" const char holdfast_asset_##label##_end[]

HOLDFAST_EMBED(openapi, HOLDFAST_OPENAPI_FILE);
#ifdef HOLDFAST_DASHBOARD_FOLDER
HOLDFAST_EMBED(page, HOLDFAST_DASHBOARD_FOLDER "/index.html");
HOLDFAST_EMBED(script, HOLDFAST_DASHBOARD_FOLDER "/app.js");
HOLDFAST_EMBED(style, HOLDFAST_DASHBOARD_FOLDER "/app.css");
#endif

namespace holdfast::server::assets {

namespace {

std::string_view between(const char* begin, const char* end) noexcept {
  return {begin, static_cast<std::size_t>(end - begin)};
}

}  // namespace

std::string_view openapi() noexcept {
  return between(holdfast_asset_openapi, holdfast_asset_openapi_end);
}

#ifdef HOLDFAST_DASHBOARD_FOLDER

std::string_view page() noexcept { return between(holdfast_asset_page, holdfast_asset_page_end); }
std::string_view script() noexcept {
  return between(holdfast_asset_script, holdfast_asset_script_end);
}
std::string_view style() noexcept {
  return between(holdfast_asset_style, holdfast_asset_style_end);
}

#else

std::string_view page() noexcept {
  return R"(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Holdfast</title>
<link rel="stylesheet" href="app.css">
</head>
<body>
<h1>Holdfast</h1>
<p>This is a lock service. It answers its API, which <a href="openapi.json">openapi.json</a> describes.</p>
<p>It was built without the dashboard, because node and npm were not there. Install them
(Debian: <code>apt install nodejs npm</code>), configure and build again, and start it anew.</p>
<p>Until then <code>holdfast ls</code>, <code>holdfast show</code> and <code>holdfast top</code> show its locks.</p>
</body>
</html>
)";
}
std::string_view script() noexcept { return ""; }
std::string_view style() noexcept {
  return "body { font-family: sans-serif; margin: 2em; max-width: 40em; }\n";
}

#endif

}  // namespace holdfast::server::assets
