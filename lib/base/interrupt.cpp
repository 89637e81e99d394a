#include "lib/base/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>

namespace vlmtune {
namespace {

std::atomic<int> g_signal = 0;

[[noreturn]] void wait_for(const sigset_t& signals) {
  for (;;) {
    int signal = 0;
    if (sigwait(&signals, &signal) != 0) continue;
    if (g_signal != 0) _exit(128 + signal);
    g_signal = signal;
  }
}

}  // namespace

void catch_interrupts() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  static const bool waits = [&] {
    std::thread(wait_for, signals).detach();
    return true;
  }();
  static_cast<void>(waits);
}

int interrupt_signal() { return g_signal; }

}  // namespace vlmtune
