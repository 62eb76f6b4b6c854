#include "train/interrupt.h"

#include <unistd.h>

namespace snug {
namespace {

volatile std::sig_atomic_t noted_signal = 0;

// The handler has a stack of its own. On the program's, a signal during oneDNN's AVX-512 products (2.6.3) ended one run in four by SIGSEGV, as if
// the stack pointer were none just then; with this, none of twenty.
alignas(64) char handler_stack[64 << 10];

void note_signal(int signal) {
  if (noted_signal == 0)
    noted_signal = signal;
  else if (signal != SIGHUP)
    _exit(128 + signal);
}

}  // namespace

InterruptGuard::InterruptGuard() {
  noted_signal = 0;
  struct sigaction action = {};
  action.sa_handler = note_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  stack_t own = {};
  own.ss_sp = handler_stack;
  own.ss_size = sizeof handler_stack;
  sigaltstack(&own, &old_stack_);
  sigaction(SIGINT, &action, &old_int_);
  sigaction(SIGTERM, &action, &old_term_);
  sigaction(SIGHUP, nullptr, &old_hup_);
  if (old_hup_.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
}

InterruptGuard::~InterruptGuard() {
  sigaction(SIGINT, &old_int_, nullptr);
  sigaction(SIGTERM, &old_term_, nullptr);
  sigaction(SIGHUP, &old_hup_, nullptr);
  sigaltstack(&old_stack_, nullptr);
}

int InterruptGuard::requested() const { return noted_signal; }

}  // namespace snug
