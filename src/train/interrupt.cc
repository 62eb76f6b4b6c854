#include "train/interrupt.h"

#include <unistd.h>

namespace snug {
namespace {

volatile std::sig_atomic_t noted_signal = 0;

void note_signal(int signal) {
  if (noted_signal != 0) _exit(128 + signal);
  noted_signal = signal;
}

}  // namespace

InterruptGuard::InterruptGuard() {
  noted_signal = 0;
  struct sigaction action = {};
  action.sa_handler = note_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, &old_int_);
  sigaction(SIGTERM, &action, &old_term_);
}

InterruptGuard::~InterruptGuard() {
  sigaction(SIGINT, &old_int_, nullptr);
  sigaction(SIGTERM, &old_term_, nullptr);
}

int InterruptGuard::requested() const { return noted_signal; }

}  // namespace snug
