// SIGINT and SIGTERM as a flag that loops look at between steps.
#pragma once

namespace vlmtune {

/// From now on the first SIGINT or SIGTERM only sets the flag; a second one ends the process at once.
void catch_interrupts();

/// The signal that arrived, or 0.
int interrupt_signal();

}  // namespace vlmtune
