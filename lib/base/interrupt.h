// SIGINT and SIGTERM as a flag that loops look at between steps.
#pragma once

namespace vlmtune {

/// From now on the first SIGINT or SIGTERM only sets the flag; a second one ends the process at once. To be called before other
/// threads begin: they must not be interrupted, since a signal that is handled in the middle of oneDNN's generated fp32
/// products destroys memory (LibTorch 2.11). A thread of its own waits for signals instead.
void catch_interrupts();

/// The signal that arrived, or 0.
int interrupt_signal();

}  // namespace vlmtune
