// Compiled as C++17. What is wrong must be said in one line, before the lines about missing headers.
#include <holdfast/holdfast.hpp>
