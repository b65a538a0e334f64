// Shifts the wall clock of a program that a test starts with LD_PRELOAD: by as many seconds as the file
// $HOLDFAST_CLOCK_SHIFT says, which may change at any time. The steady clock stays as it is.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <ctime>

namespace {

// The file holds one 64-bit number and is mapped: what the test writes counts at once.
std::int64_t shift() {
  static const std::atomic<std::int64_t>* const from = [] {
    static const std::atomic<std::int64_t> none{0};
    const char* path = std::getenv("HOLDFAST_CLOCK_SHIFT");
    const int fd = path == nullptr ? -1 : ::open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return &none;
    void* at = ::mmap(nullptr, sizeof(std::int64_t), PROT_READ, MAP_SHARED, fd, 0);
    ::close(fd);
    return at == MAP_FAILED ? &none : static_cast<const std::atomic<std::int64_t>*>(at);
  }();
  return from->load(std::memory_order_relaxed);
}

template <class Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int gettimeofday(timeval* time, void* zone) noexcept {
  static auto* const next = real<int(timeval*, void*)>("gettimeofday");
  const int got = next(time, zone);
  if (got == 0) time->tv_sec += shift();
  return got;
}

int clock_gettime(clockid_t which, timespec* time) noexcept {
  static auto* const next = real<int(clockid_t, timespec*)>("clock_gettime");
  const int got = next(which, time);
  if (got == 0 && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE))
    time->tv_sec += shift();
  return got;
}

std::time_t time(std::time_t* into) noexcept {
  static auto* const next = real<std::time_t(std::time_t*)>("time");
  const auto now = next(nullptr) + shift();
  if (into != nullptr) *into = now;
  return now;
}
}
