// Included first by every other header: a compiler that is set to an older language says so, in one sentence, before it
// stumbles over what it does not know.
#pragma once

#if __cplusplus < 202002L
#error "Holdfast needs C++20: compile with -std=c++20, or in CMake with cxx_std_20."
#endif
